package controller

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/tranche-dev/tranche/rollout/analysis"
	"github.com/tranche-dev/tranche/rollout/analysis/outbound"
)

// analysisOptions are about the servers that metrics come from.
type analysisOptions struct {
	config   string
	networks []string
}

func (o *analysisOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.config, "analysis-config", "",
		"file with the providers of metrics that plans may name; read again when it changes")
	f.StringSliceVar(&o.networks, "analysis-networks", nil,
		"networks of the servers that plans name by address, such as 10.0.0.0/8; none for no address. "+
			"This machine, the link and metadata services are always refused. Default: all others")
}

// read reads the file, and fails if it is not valid.
func (o *analysisOptions) read() (analysis.Options, error) {
	networks, err := outbound.ParseNetworks(o.networks)
	if err != nil {
		return analysis.Options{}, fmt.Errorf("--analysis-networks: %w", err)
	}
	c, err := analysis.ReadConfiguration(o.config)
	if err != nil {
		return analysis.Options{}, fmt.Errorf("--analysis-config: %w", err)
	}
	return analysis.Options{Configuration: c, Networks: networks}, nil
}
