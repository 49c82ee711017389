// Package analysis asks providers for the measurements that the engine names: Prometheus,
// Datadog, a server of the user, or a Job. It is the shell around rollout/engine/verdict, which
// judges the answers. No other package of rollout sends HTTP requests to servers that plans
// name.
//
// [Providers] turns one measurement into one answer. Package pool asks for many releases at
// the same time. Package outbound guards the requests. Each provider is a package of its own,
// and yields finite numbers or an error of package unknown.
//
// Secrets are read and Jobs are made as the account of the release. Nothing that a server
// answers is in a message, a log or the status, except for the value itself.
package analysis
