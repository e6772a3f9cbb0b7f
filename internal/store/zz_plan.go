package store

var PlanStatements = []struct{ Name, SQL, Args string }{
	{"lockid", deliverLockByIDSQL, "5,'go'"},
	{"lockkey", deliverLockByKeySQL, "'k','go'"},
	{"insert", deliverInsertSQL, "'go','{}','d',10000,'k'"},
	{"flip", deliverFlipSQL, "'go'"},
	{"holder", holderSQL, "5,'k'"},
	{"ended", endedSQL, "'{1,2,3,500000}'"},
	{"inbox", readInboxSQL, "5"},
	{"round", roundSQL, "5,1"},
	{"children", childrenSQL, "'{1,2,3}'"},
	{"due", pruneDueSQL, "3600000000,3600000000,'epoch',0,1000"},
	{"prune", pruneSQL, "3600000000,3600000000,'{300000,200001,200002}',1"},
	{"overgrown", overgrownSQL, "90,100"},
	{"tomb", pruneTombstonesSQL, "5,50,100,1"},
}
