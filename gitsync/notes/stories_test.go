package notes

import "testing"

func TestWithStories(t *testing.T) {
	const web = "Tranche-Release: shop/web\nTranche-Revision: a\nStarted: 1"
	const web2 = "Tranche-Release: shop/web\nTranche-Revision: a\nStarted: 2"
	for _, tt := range []struct {
		reason, note string
		paragraphs   []string
		want         string
	}{
		{"the first", "", []string{web}, web + "\n"},
		{"the same again", web + "\n", []string{web}, web + "\n"},
		{"it goes on", web + "\n", []string{web + "\nOutcome: Completed"}, web + "\nOutcome: Completed\n"},
		{
			"the same revision released again", web + "\nOutcome: Superseded\n", []string{web2},
			web + "\nOutcome: Superseded\n\n" + web2 + "\n",
		},
		{
			"the words of others stay, where they are", "Looked at\n\n" + web + "\n\nby Grace\n", []string{web + "\nx"},
			"Looked at\n\n" + web + "\nx\n\nby Grace\n",
		},
	} {
		if got := merged(tt.note, tt.paragraphs); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.reason, got, tt.want)
		}
	}
}
