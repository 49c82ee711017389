package cli

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
)

// CanAsk refuses an input that is not a terminal, unless yes is given. A command calls
// it first: a script has to learn of it before anything is read or shown.
func CanAsk(cmd *cobra.Command, yes bool) error {
	if yes || terminal.Is(cmd.InOrStdin()) {
		return nil
	}
	return errors.New("the input is not a terminal, so the command cannot ask; give --yes")
}

// Ask asks a question that only y or yes says yes to.
func Ask(cmd *cobra.Command, question string) bool {
	if _, err := fmt.Fprint(cmd.OutOrStdout(), "\n"+terminal.Printable(question)+" [y/N] "); err != nil {
		return false // who does not see the question has not said yes
	}
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil {
		return false
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// Agree asks the user, unless yes is set, and returns an error if the user does not agree.
func Agree(cmd *cobra.Command, yes bool, question string) error {
	if err := CanAsk(cmd, yes); err != nil {
		return err
	}
	if !yes && !Ask(cmd, question) {
		return errors.New("nothing was done")
	}
	return nil
}
