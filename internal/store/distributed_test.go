package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/store"
)

// plainOnly are the tests that cannot hold in a schema that Citus distributes, by why. All others
// do: make citus runs them.
var plainOnly = map[string][]string{
	"it has DDL of a host or a fault, which a worker refuses in a distributed schema": {
		"TestAClaimThatWasHeldUpIsToldWhoLingers",
		"TestAHeadThatCannotComeForwardHoldsUpNoClaim",
		"TestAHeadThatIsRefusedKeepsNobodyElse",
		"TestALeaseCountsFromWhenItIsGiven",
		"TestARefusedHeadHoldsUpItsOwnKeyOnly",
		"TestARefusedRowAndAHeldOne",
		"TestARefusedRowAtAGate",
		"TestARowThatCannotBeReadKeepsNobodyElse",
		"TestATriggerThatRaisesAUniqueViolation",
		"TestConcurrentEndsOfNodes",
		"TestConcurrentEndsWakeOnce",
		"TestCountIsCutOff",
		"TestDeliverBehindAnUnless",
		"TestDoneOfARowThatIsNotKept",
		"TestEndsOfNodesCostTheirEdges",
		"TestExpireAroundARowThatCannotChange",
		"TestFencingTokensOrderTheHoldersOfAKey",
		"TestHistoryOfSweepsAroundARowThatCannotChange",
		"TestInsertOnAKeyThatIsFreedMeanwhile",
		"TestInsertsWithoutTheRightToReadGates",
		"TestLeasesBesideOneThatIsRefused",
		"TestNoClaimHasTheInboxOfBefore",
		"TestPickersSideBySideOnFewKeys",
		"TestReapAroundARowThatCannotChange",
		"TestRefusalsOfTriggers",
		"TestRestAroundARowThatCannotChange",
		"TestRestartCostsWhatItChanges",
		"TestSweepsPassOverWhatIsRefused",
		"TestSweepsThatAreRefusedAltogether",
	},
	"it changes rows by hand through the tables' shells, in a form that Citus does not plan": {
		"TestAGateOfAQueue",
		"TestAKeyIsThrottled",
		"TestARate",
		"TestARateByCost",
		"TestAStepsOwnTransactionThatBreaksBeforeItsCommit",
		"TestAStrangerHoldsAKey",
		"TestAdditionsLookBehindTheRootsLock",
		"TestDebounce",
		"TestEveryTransitionOnEveryColumn",
		"TestPollPassesByATimeoutThatIsLeft",
		"TestPruneAlone",
		"TestPruneArchives",
		"TestPruneByOwnRetention",
		"TestPruneByRetention",
		"TestPruneByRetentionOfTheCancelled",
		"TestPruneChildrenBeforeParents",
		"TestPruneNarrowsALockDown",
		"TestPruneNarrowsARefusalDown",
		"TestPrunePassesWhatStays",
		"TestPruneSkipsWhatIsLocked",
		"TestPruneSparesTheCurrentRound",
		"TestPruneSparesTheRevived",
		"TestPruneSparesWhatIsRevivedWhileItIsArchived",
		"TestPruneWindows",
		"TestRecountWaitsForNobody",
		"TestRecountWhileAnOlderWorkerLives",
		"TestReleaseBeforeEndsChildren",
		"TestReleaseBeforeEndsChildrenOfARejoin",
		"TestRestIsCancelledHoweverTheWaitEnds",
		"TestSignalsAndTimesWakeAParent",
		"TestStreamShowsEachEndOnceInOrder",
		"TestTotals",
	},
	"it cuts or counts what a store sends from its first statement on, which is to locate the schema there": {
		"TestAStepsOwnTransactionWithoutAnswer",
		"TestCancelsReadEdgesOfNodesOnly",
		"TestDeliverOrInsertWithoutAnswer",
		"TestDeliverWithoutAnswer",
		"TestInsertOfTheSameKeysInOppositeOrders",
		"TestInsertWithoutAnswer",
		"TestInsertWithoutAnswerOfWhatHasEnded",
		"TestRuledInsertWithoutAnswer",
	},
	"it expects plain Postgres' numbers, plans, statistics, locks or partitions": {
		"TestAHostsCancelReadsNoTableFromEndToEnd",
		"TestALineHasItsLockAgain",
		"TestCommitsThatKeepTheirClaimsUpdateInPlace",
		"TestKeyedChildrenGoInInKeyOrder",
		"TestRollHistory",
		"TestTokensGrowWithEveryClaim",
	},
}

// notOnCitus skips a test of plainOnly where the tests' schemas are distributed.
func notOnCitus(t *testing.T) {
	t.Helper()
	if !pgtest.IsDistributed() {
		return
	}
	root, _, _ := strings.Cut(t.Name(), "/")
	for why, tests := range plainOnly {
		for _, name := range tests {
			if name == root {
				t.Skip("not in a distributed schema: " + why)
			}
		}
	}
}

// located makes a store find the shards, where the tests' schemas are distributed.
func located(t *testing.T, s *store.Store) {
	t.Helper()
	if pgtest.IsDistributed() {
		require.NoError(t, s.Locate(t.Context()))
	}
}
