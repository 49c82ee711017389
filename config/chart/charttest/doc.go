// Package charttest renders, installs and tests the Helm chart. It is a module of its own,
// so that the program does not depend on Helm.
//
// [Render] renders the chart without a cluster. [Helm] does what the command helm does.
// [Kubelet] runs the containers of the chart as processes of this machine: the nodes of the embedded
// cluster only play that pods run.
package charttest
