package send_test

import (
	"testing"

	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.NoLeaks(m) }
