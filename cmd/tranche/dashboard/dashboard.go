package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/feed"
)

// The ways to find out who reads.
const (
	authLocal = "local"
	authToken = "token"
	authProxy = "proxy"
)

type options struct {
	address      string
	namespaces   []string
	auth         string
	hosts        []string
	trusted      []string
	userHeader   string
	groupsHeader string
}

// New returns the command.
func New() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "dashboard",
		Short: "Show releases and sources in a browser",
		Long: `Show what waits, what moves and what has failed, in a browser. The command prints a URL
with a token in it, and serves the page to the browser that opens it. It reads with the
kubeconfig of this user, listens on 127.0.0.1 alone, and ends with ^C.

In a cluster the dashboard is a Deployment that may only read (config/dashboard). There each
reader sees the namespaces whose BatchReleases they may list. With --auth=token a reader is
known by a bearer token, and with --auth=proxy by the headers of a proxy in
--trusted-proxies. There is no anonymous mode.`,
		Example: `  tranche dashboard
  tranche dashboard -n shop --address 127.0.0.1:8642
  tranche dashboard --auth=proxy --address 127.0.0.1:8642 --trusted-proxies 127.0.0.1/32 \
    --allowed-hosts tranche.example.org`,
		Args: cobra.NoArgs,
	}
	k := cli.AddWholeCluster(c)
	f := c.Flags()
	f.StringVar(&o.address, "address", "127.0.0.1:0", "address to listen on; port 0 is a free one")
	f.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "show these namespaces alone (default: all)")
	f.StringVar(&o.auth, "auth", authLocal, "how readers are known: local (the URL that is printed), token or proxy")
	f.StringSliceVar(&o.hosts, "allowed-hosts", nil,
		"names by which browsers reach the dashboard; required with --auth=token and --auth=proxy")
	f.StringSliceVar(&o.trusted, "trusted-proxies", nil, "addresses of the proxy whose headers count, such as 127.0.0.1/32")
	f.StringVar(&o.userHeader, "proxy-user-header", "X-Forwarded-User", "header of the proxy with the name of the user")
	f.StringVar(&o.groupsHeader, "proxy-groups-header", "X-Forwarded-Groups", "header of the proxy with the groups of the user")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		trusted, err := o.check()
		if err != nil {
			return err
		}
		at, err := k.Connect()
		if err != nil {
			return err
		}
		return o.run(cmd, at, trusted)
	}
	return c
}

// check refuses flags that would let a stranger read. It returns the trusted proxies.
func (o *options) check() ([]netip.Prefix, error) {
	host, _, err := net.SplitHostPort(o.address)
	if err != nil {
		return nil, fmt.Errorf("--address %s: must be HOST:PORT", o.address)
	}
	switch o.auth {
	case authLocal:
		if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
			return nil, fmt.Errorf("--address %s: --auth=local listens on 127.0.0.1 alone; use --auth=token or --auth=proxy elsewhere", o.address)
		}
		if len(o.hosts)+len(o.trusted) > 0 {
			return nil, errors.New("--allowed-hosts and --trusted-proxies are not for --auth=local")
		}
		return nil, nil
	case authToken:
		if len(o.trusted) > 0 {
			return nil, errors.New("--trusted-proxies is for --auth=proxy")
		}
	case authProxy:
		if len(o.trusted) == 0 {
			return nil, errors.New("--trusted-proxies is missing: headers of any other peer could name any user")
		}
	default:
		return nil, fmt.Errorf("--auth %s: must be one of local, token, proxy", o.auth)
	}
	if len(o.hosts) == 0 {
		return nil, errors.New("--allowed-hosts is missing: name the host by which browsers reach the dashboard")
	}
	return prefixes(o.trusted)
}

func prefixes(texts []string) ([]netip.Prefix, error) {
	var found []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--trusted-proxies %s: must be an address with the length of its prefix, such as 127.0.0.1/32", text)
		}
		found = append(found, p)
	}
	return found, nil
}

// run serves until the context ends.
func (o *options) run(cmd *cobra.Command, at *cli.Connection, trusted []netip.Prefix) error {
	ctx := cmd.Context()
	ctrl.SetLogger(logr.Discard()) // of the informers
	kinds, err := readable(ctx, at, o.namespaces)
	if err != nil {
		return err
	}
	f, err := feed.NewCluster(at.Config, at.Scheme(), o.namespaces, kinds)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Start(ctx), f.Probe(ctx, at.Config, probeEvery)); err != nil {
		return err
	}
	if at, err = at.With(f.Answers); err != nil {
		return err
	}
	go f.FollowLeaders(ctx, at, at.Namespace, leadersEvery)
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", o.address)
	if err != nil {
		return fmt.Errorf("listening on --address %s: %w", o.address, err)
	}
	s := &Server{Feed: f, Rights: access.All{}, Hosts: o.hosts, Now: time.Now}
	url := "http://" + l.Addr().String() + "/"
	switch o.auth {
	case authToken:
		s.Auth, s.Rights = access.NewToken(at, time.Now), access.NewReviewed(at, time.Now)
	case authProxy:
		s.Auth = &access.Proxy{Trusted: trusted, UserHeader: o.userHeader, GroupsHeader: o.groupsHeader}
		s.Rights = access.NewReviewed(at, time.Now)
	default:
		tcp, _ := l.Addr().(*net.TCPAddr)
		local := access.NewLocal(tcp.Port, time.Now)
		s.Auth, url = local, url+"?token="+local.Token
		s.Hosts = []string{l.Addr().String(), fmt.Sprintf("localhost:%d", tcp.Port)}
		if dir, err := os.Getwd(); err == nil {
			s.Clone = &Clone{Dir: dir, Connection: at}
		}
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "The dashboard is at %s\n", url); err != nil {
		return err
	}
	return serve(ctx, l, s.Handler())
}

// probeEvery is the time between two questions whether the cluster answers.
const probeEvery = 2 * time.Second

// leadersEvery is the time between two looks at the leases of controllers.
const leadersEvery = 10 * time.Second

// closesWithin is how long requests under way may take at the end.
const closesWithin = 5 * time.Second

func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }, // streams end with it
	}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		closing, stop := context.WithTimeout(context.WithoutCancel(ctx), closesWithin)
		defer stop()
		ended <- server.Shutdown(closing)
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the dashboard: %w", err)
	}
	return <-ended
}

// readable returns the kinds that the account of this process may read. It must read
// BatchReleases.
func readable(ctx context.Context, at *cli.Connection, namespaces []string) (kinds feed.Kinds, err error) {
	may := func(what access.Resource) bool {
		asked := namespaces
		if len(asked) == 0 {
			asked = []string{""}
		}
		for _, namespace := range asked {
			for _, verb := range []string{"list", "watch"} {
				review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
					ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: what.Group, Resource: what.Name, Namespace: namespace},
				}}
				if e := at.Create(ctx, review); e != nil {
					err = errors.Join(err, fmt.Errorf("asking the cluster what this account may read: %w", e))
					return false
				}
				if !review.Status.Allowed {
					return false
				}
			}
		}
		return true
	}
	releases := may(access.BatchReleases)
	kinds = feed.Kinds{
		Sources: may(access.GitSources), Workloads: may(access.Deployments) && may(access.ReplicaSets), Events: may(access.Events),
	}
	switch {
	case err != nil:
		return kinds, err
	case !releases && len(namespaces) == 0:
		return kinds, errors.New("this account may not list and watch BatchReleases in all namespaces; name those that it may see with -n")
	case !releases:
		return kinds, fmt.Errorf("this account may not list and watch BatchReleases in %v", namespaces)
	}
	return kinds, nil
}
