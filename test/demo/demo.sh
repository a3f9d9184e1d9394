#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# The steps of the demo. The Go program beside this script starts it in a directory of its own, with kubectl on the PATH, and starts and
# stops programs for it. A command that fails ends the demo; a check that fails does not.

here=${BASH_SOURCE[0]%/*}
. "$here/lib.sh"
cp "$here"/manifests/{cluster,late-machine,machinedeployment,machines,machineset,reserved}.yaml .

ask start
kubectl get nodes --watch "${entries[@]}" >watched 2>watch.err &
watch=$!
say "These are the real programs. heirloom runs as a process with the rights that its chart grants. Cluster API's controllers do not run:
the demo creates a bare MachineSet and bare Machines in their place, so that everything else on them comes from Heirloom. The manifests
are in test/demo/manifests."

headline "MachineSet and Machines inherit in the write that creates them"
run kubectl apply -f cluster.yaml -f machinedeployment.yaml
of machinedeployment workers template >declared
say "MachineDeployment workers declares the following in spec.template. Two taints are in spec.taints, two in annotations; in both places,
one taint stays on Nodes (Always), and Nodes get the other only once (OnInitialization). Its own annotation, runbook, is for its
MachineSets."
table declared

say "The demo creates its MachineSet as the controller would without Heirloom, with an owner reference and the labels that it selects by:"
create machineset.yaml machinedeployment workers
set='workers-x7k2p [^ ]+'
added "$set template" >added
say "The API server's answer has these additional entries in spec.template:"
table added
check "MachineSet: the answer to CREATE has every label, annotation and taint of the template" answer "$set template" declared
sed -n '/^label /p' added >own
echo "annotation runbook=https://example.com/workers" | sort -o own - own
check "MachineSet: its own metadata has the template's labels, and the MachineDeployment's own annotation" answer "$set itself" own
fields added >fields
fields own >own-fields
check "MachineSet: in metadata.managedFields, heirloom owns all entries of the template (operation Apply)" answer "$set template-Apply" fields
check "MachineSet: in metadata.managedFields, heirloom owns all entries of its own metadata (operation Apply)" answer "$set Apply" own-fields

say "Then it creates two Machines without labels, annotations and taints:"
create machines.yaml machineset workers-x7k2p
say "The API server's answer for worker-1 has these additional entries:"
added 'worker-1 [^ ]+ itself' >added
table added
for name in worker-1 worker-2; do
	check "Machine $name: the answer to CREATE also has all of them" answer "$name [^ ]+ itself" declared
	check "Machine $name: in metadata.managedFields, heirloom owns all of them (operation Apply)" answer "$name [^ ]+ Apply" fields
done

# The entries that reach Nodes: those that every kubelet may set on its own Node, the labels that NodeRestriction forbids, and taints.
grep -E '^(label|annotation) node\.cluster\.x-k8s\.io/' declared >free
grep -E '^label node-(role|restriction)\.kubernetes\.io/' declared >restricted
taints() { sed -nE "s/^annotation taints\\.heirloom\\.dev\\/$1=/taint /p; s/^(taint .*) $2\$/\\1/p" declared | sort; }
taints always Always >always
taints initialize OnInitialization >initialize
sort always initialize >taints
echo "taint node.cluster.x-k8s.io/uninitialized:NoSchedule" >uninitialized

headline "Nodes have their taints from the first moment"
say "Two kubelets register their Nodes: real kubelet code over a fake container runtime. Their users are system:node:worker-1 and
system:node:worker-2. Admission plugin NodeRestriction is on."
kubelet worker-1
kubelet worker-2
for name in worker-1 worker-2; do
	first=$(versions $name | head -n 1)
	part "$name $first itself" watched >first
	say "The first version of Node $name that the API server stored (resourceVersion $first):"
	grep -E '^taint |^[a-z]+ (node\.)?(cluster\.x-k8s\.io|heirloom\.dev)/' first >inherited
	[[ $name == worker-2 ]] || table inherited
	check "It has every Always and every OnInitialization taint" missing taints <first
	check "It has the labels and annotations under node.cluster.x-k8s.io" missing free <first
	check "It has no label that kubelets must not set" unwanted restricted <first
	check "A taint keeps Pods away until it has these labels" missing uninitialized <first
done

say "Kubelets must not set labels under node-role.kubernetes.io and node-restriction.kubernetes.io:"
rejected=0
run kubectl --kubeconfig worker-1.kubeconfig label node worker-1 node-role.kubernetes.io/infra= || rejected=$?
check "The API server rejects the kubelet's write" test "$rejected" -ne 0

say "So Heirloom's loop, which has this right, adds them."
for name in worker-1 worker-2; do
	check "Node $name has all labels now" eventually has restricted node $name
	check "Its taint node.cluster.x-k8s.io/uninitialized is gone" eventually lacks uninitialized node $name
	check "It still has every Always and every OnInitialization taint" has taints node $name
	number=0
	for version in $(versions $name); do
		number=$((number + 1))
		part "$name $version itself" watched >now
		[[ -z $(unwanted restricted <now) ]] || break
	done
	fields restricted >fields
	check "All labels arrived in version $number (resourceVersion $version)" missing restricted <now
	check "They were written by field manager heirloom" missing fields < <(part "$name $version Update" watched)
done

headline "An Always taint cannot be removed by accident"
say "A user removes both Always taints from Node worker-1. kubectl reports success, but the API server answers with warnings:"
run kubectl taint node worker-1 licensed- gpu-
for taint in licensed=yes:NoSchedule gpu=true:NoSchedule; do
	check "A warning says that ${taint%=*} was kept, where it comes from and where to change it" \
		grep -q "^Warning: .*$taint.* Machine default/worker-1.* edit MachineDeployment default/workers" err
done
versions worker-1 | while read -r version; do
	part "worker-1 $version itself" watched | missing always | sed "s/^/resourceVersion $version: /"
done >problems
check "Every stored version of the Node has both taints: Heirloom restored them in the same write" cat problems

headline "A Node gets an OnInitialization taint once; after you remove it, it stays away"
say "The workload of Node worker-1 has warmed up, so a user removes its OnInitialization taints:"
run kubectl taint node worker-1 warming-up- booting-
removed=$(versions worker-1 | tail -n 1)
check "The taints are gone" lacks initialize node worker-1
say "A change to its Machine makes Heirloom sync the Node again:"
run kubectl label machine worker-1 node.cluster.x-k8s.io/shift=night
echo "label node.cluster.x-k8s.io/shift=night" >shift
check "The Machine's new label arrives at the Node" eventually has shift node worker-1
versions worker-1 "$removed" | while read -r version; do
	part "worker-1 $version itself" watched | unwanted initialize | sed "s/^/resourceVersion $version: /"
done >problems
check "The OnInitialization taints have not come back in any version" cat problems
check "The Always taints are there" has always node worker-1

headline "A reserved taint is rejected where you declare it"
say "MachineDeployment reserved declares the taint node.kubernetes.io/unreachable in spec.taints and in an annotation."
rejected=0
run kubectl create -f reserved.yaml || rejected=$?
check "The API server rejects it" test "$rejected" -ne 0
for field in 'spec.template.spec.taints[0].key' 'spec.template.metadata.annotations[taints.heirloom.dev/always]'; do
	check "It says which field is wrong: $field" grep -qF "$field" err
done
check "It was not stored" kubectl get machinedeployment reserved --ignore-not-found

headline "What you no longer declare disappears; what others set stays"
say "First a user sets a label on a Machine and another one on its Node:"
run kubectl label machine worker-1 ticket=4711
run kubectl label node worker-1 rack=r7
say "Then one label is deleted from the template of the MachineDeployment:"
show sed -i "'/pool: gpu/d'" machinedeployment.yaml
sed -i.orig '/pool: gpu/d' machinedeployment.yaml
run kubectl apply -f machinedeployment.yaml
echo "label node.cluster.x-k8s.io/pool=gpu" >pool
for part in itself template; do
	check "The label is gone from the MachineSet, in its ${part/itself/own metadata}" eventually lacks pool machineset workers-x7k2p $part
done
for name in worker-1 worker-2; do
	check "The label is gone from Machine $name" eventually lacks pool machine $name
	check "The label is gone from Node $name" eventually lacks pool node $name
done
for list in declared free; do
	sed -i.orig '/ node\.cluster\.x-k8s\.io\/pool=/d' $list
done
echo "label ticket=4711" >ticket
echo "label rack=r7" >rack
check "The user's own entry stays: ticket on the Machine" has ticket machine worker-1
check "The user's own entry stays: rack on the Node" has rack node worker-1
check "Everything else that is declared stays on the Machine" has declared machine worker-1

headline "The fleet works without Heirloom, and Heirloom then repairs what it missed"
echo
ask stop
say "Its webhooks are still registered, with failurePolicy Ignore. A user creates a Machine, labels another Machine, and removes a taint
from a Node:"
create late-machine.yaml machineset workers-x7k2p
run kubectl label machine worker-2 ticket=4712
run kubectl taint node worker-2 gpu-
check "All of it succeeds without Heirloom" grep -q untainted out
say "A new kubelet also registers:"
kubelet worker-3
check "Node worker-3 registers without Heirloom, and has no taint of its Machine" lacks taints node worker-3
echo
ask start
check "Machine worker-3 has everything that is declared" eventually has declared machine worker-3
check "Node worker-3 has its labels and annotations" eventually has free node worker-3
check "Node worker-3 has its labels that only a privileged user may set" eventually has restricted node worker-3
check "Node worker-3 has its Always taints" eventually has always node worker-3
check "Node worker-3 has its OnInitialization taints" eventually has initialize node worker-3
check "Node worker-2 has its Always taints again" eventually has always node worker-2
check "Node worker-1 did not get its OnInitialization taints back" lacks initialize node worker-1
