//! The examples at the end of each long help: commands to copy.

pub(super) const APPLY: &str = "Examples:
  mco-rescue apply
  mco-rescue apply worker.yaml
  mco-rescue apply worker.yaml --try=10m
  mco-rescue apply --yes --root /mnt cached:rendered-worker-b8d3
  mco-rescue apply --root /mnt --key me.pub
  oc get mc NAME -o json | ssh core@NODE sudo mco-rescue apply -y -";

pub(super) const CONFIRM: &str = "Examples:
  mco-rescue confirm
  ssh core@NODE sudo mco-rescue confirm
  mco-rescue confirm --from-console";

pub(super) const PLAN: &str = "Examples:
  mco-rescue plan
  mco-rescue plan worker.yaml --files-only
  mco-rescue plan --latest --output json";

pub(super) const REHEARSE: &str = "Examples:
  mco-rescue rehearse
  mco-rescue rehearse worker.yaml
  mco-rescue --root /mnt rehearse --output json";

pub(super) const VERIFY: &str = "Examples:
  mco-rescue verify
  mco-rescue verify worker.yaml --root /mnt";

pub(super) const PIVOT: &str = "Examples:
  mco-rescue pivot
  mco-rescue pivot --os-from /run/media/stick/image --reboot";

pub(super) const PREFLIGHT: &str = "Examples:
  mco-rescue preflight --os-from /run/media/stick/image
  mco-rescue preflight --os-from /run/media/stick/image --output json";

pub(super) const SHOW: &str = "Examples:
  mco-rescue show
  mco-rescue show worker.yaml /etc/kubernetes/kubelet.conf
  mco-rescue show /etc/kubernetes/kubelet.conf";

pub(super) const DOCTOR: &str = "Examples:
  mco-rescue doctor
  mco-rescue doctor FP-09
  mco-rescue doctor --root /mnt
  mco-rescue doctor --deep
  mco-rescue doctor --fix FP-33
  mco-rescue doctor --until 2030-01-31
  mco-rescue doctor --bundle /run/media/stick/node.tar.gz";

pub(super) const RECORD: &str = "Examples:
  mco-rescue record";

pub(super) const HISTORY: &str = "Examples:
  mco-rescue history
  mco-rescue history --root /mnt
  mco-rescue history --store /mnt/boot";

pub(super) const DIFF: &str = "Examples:
  mco-rescue diff
  mco-rescue diff 12 15
  mco-rescue diff good now --root /mnt
  mco-rescue diff --store /mnt/boot";

pub(super) const STATUS: &str = "Examples:
  mco-rescue status
  mco-rescue status --for-cluster
  mco-rescue status --for-cluster --object rendered-worker-b8d3 > mc.json";

pub(super) const FETCH: &str = "Examples:
  mco-rescue fetch --pool worker --server api-int.DOMAIN --ca ca.crt
  mco-rescue fetch
  mco-rescue fetch --from-media";

pub(super) const CACHE: &str = "Examples:
  mco-rescue cache list
  mco-rescue cache export rendered-worker-b8d3 > worker.json";

pub(super) const BUTANE: &str = "Examples:
  mco-rescue butane chrony.bu > chrony.yaml
  mco-rescue butane chrony.bu -d files --strict
  mco-rescue butane - < chrony.bu";

pub(super) const RENDER: &str = "Examples:
  oc get mc -l machineconfiguration.openshift.io/role=worker -o yaml > w
  mco-rescue render worker w > rendered.json
  mco-rescue plan rendered.json";

pub(super) const CHANGE: &str = "Examples:
  mco-rescue change mirror quay.io/team mirror.lab.example:5000/team
  mco-rescue change kubelet maxPods=300
  mco-rescue change with mirrors.yaml
  mco-rescue apply cached:rendered-worker-NAME";

pub(super) const KEEP: &str = "Examples:
  mco-rescue keep > kept.yaml
  mco-rescue keep /etc/chrony.conf /etc/sysctl.d --to kept.yaml
  mco-rescue keep --argument nosmt --name 99-worker-zz-night --to kept.yaml
  oc apply -f kept.yaml";

pub(super) const REPORT: &str = "Examples:
  ssh core@w0 sudo mco-rescue status -o json > nodes/w0.status.json
  ssh core@w0 sudo mco-rescue doctor -o json > nodes/w0.doctor.json
  mco-rescue report nodes
  mco-rescue report nodes --out week-12.html";

pub(super) const ROLLBACK: &str = "Examples:
  mco-rescue rollback
  mco-rescue rollback --list
  mco-rescue rollback --to 1763840000000-1234
  mco-rescue rollback --leave-changed";

pub(super) const RECOVER: &str = "Examples:
  mco-rescue status
  mco-rescue recover
  mco-rescue recover --back";

pub(super) const INSTALL: &str = "Examples:
  ./mco-rescue install
  ./mco-rescue install --root /mnt
  ./mco-rescue install --initramfs rescue.img --config worker.yaml
  mco-rescue install --remove";

pub(super) const CAPSULE: &str = "Examples:
  mco-rescue capsule make /run/media/stick --sign KEY --pool worker
  mco-rescue capsule verify /run/media/stick
  mco-rescue capsule show /run/media/stick";

pub(super) const IMAGE: &str = "Examples:
  mco-rescue image list
  mco-rescue image export /run/media/stick/os
  mco-rescue image export --since /mnt/ostree/repo os.tar";

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::super::Cli;

    fn lines() -> Vec<String> {
        let command = Cli::command();
        let ends = command
            .get_subcommands()
            .filter_map(|sub| sub.get_after_long_help());
        let ends: Vec<String> = ends.map(ToString::to_string).collect();
        let lines = ends.iter().flat_map(|end| end.lines().skip(1));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn every_example_is_a_command_line_that_is_understood() {
        let ours = lines()
            .into_iter()
            .filter(|line| line.contains("mco-rescue "));
        let mut count = 0;
        for line in ours {
            let from = line.find("mco-rescue ").unwrap();
            let command = line[from..].split(" > ").next().unwrap();
            let command = command.split(" < ").next().unwrap();
            let parsed = Cli::try_parse_from(command.split(' '));
            assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
            count += 1;
        }
        assert!(count > 20, "{count}");
    }

    #[test]
    fn no_example_is_too_long_to_be_copied_from_one_line() {
        let long: Vec<String> = lines().into_iter().filter(|line| line.len() > 80).collect();
        assert_eq!(long, Vec::<String>::new());
    }
}
