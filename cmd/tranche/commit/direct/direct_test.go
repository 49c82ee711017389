package direct

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// An approval in the cluster that waits for the step's pods is not given again.
func TestApproveDirect_Again(t *testing.T) {
	br := clitest.Release()
	br.Status.Reason, br.Status.RequestedApproval = v1alpha1.ReasonUpgrading, &v1alpha1.RequestedApproval{Step: 1}
	cmd, out := &cobra.Command{}, &bytes.Buffer{}
	cmd.SetOut(out)
	if err := Approve(cmd, nil, br, 1, true); err != nil || !strings.Contains(out.String(), "was approved in the cluster already") {
		t.Errorf("%v: %s", err, out)
	}
}
