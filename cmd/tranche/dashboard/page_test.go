package dashboard_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
)

// The unit tests of the page pass.
func TestPage_Units(t *testing.T) {
	if missing := clitest.MissingForPage("web"); missing != "" {
		if os.Getenv(clitest.PageTests) != "" {
			t.Fatalf("%s is missing", missing)
		}
		t.Skipf("%s is missing: the tests of the page are not run", missing)
	}
	cmd := exec.Command("npm", "test", "--silent")
	cmd.Dir = "web"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
