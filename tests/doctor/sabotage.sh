#!/usr/bin/env bash
# Breaks the disk of a control-plane node in one way, with the tools that an accident has: no code of the program is used.
#
#   sabotage.sh furnish ROOT   adds what a node has besides its config, healthy
#   sabotage.sh list           names the ways, each with the words that tell the cause
#   sabotage.sh NAME ROOT      breaks the node in this way
set -euo pipefail

pods=etc/kubernetes/static-pod-resources
store=var/lib/containers/storage
kubelet=var/lib/kubelet

# A record of an Open vSwitch database: header with length and SHA-1, then the JSON.
record() {
    local json=$1$'\n'
    printf 'OVSDB JSON %d %s\n%s' "${#json}" "$(printf %s "$json" | sha1sum | cut -d' ' -f1)" "$json"
}

put() {
    mkdir -p "$(dirname "$1")"
    cat >"$1"
}

# Writes some bytes over those at an offset.
overwrite() {
    printf %b "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# The newest file that fits.
newest() {
    find "$1" -name "$2" | sort | tail -1
}

furnish() {
    echo master-0 | put etc/hostname
    # The kubelet's own files.
    printf '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}' | put $kubelet/cpu_manager_state
    printf '{"data":"{\\"policyName\\":\\"none\\",\\"defaultCPUSet\\":\\"4-6\\"}","checksum":657950972}' | put $kubelet/allocated_pods_state
    # Images of CRI-O.
    local base=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa top=bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb image=cccccccccccccccccccccccccccccccc
    printf '[{"id":"%s"},{"id":"%s","parent":"%s"}]' $base $top $base | put $store/overlay-layers/layers.json
    printf '[{"id":"%s","names":["quay.example/a:1"],"layer":"%s"}]' $image $top | put $store/overlay-images/images.json
    printf '[]' | put $store/overlay-containers/containers.json
    local layer
    for layer in $base $top; do
        mkdir -p $store/overlay/"$layer"/diff
        printf ABCDEFGHIJKLMNOPQRSTUVWXYZ | put $store/overlay/"$layer"/link
    done
    printf l/ABCDEFGHIJKLMNOPQRSTUVWXYZ | put $store/overlay/$top/lower
    printf '[Service]\nType=oneshot\nExecStart=/usr/bin/crio wipe\n' | put usr/lib/systemd/system/crio-wipe.service
    : | put var/lib/crio/clean.shutdown.supported
    : | put var/lib/crio/clean.shutdown
    # Open vSwitch.
    {
        record '{"name":"Open_vSwitch","version":"8.5.0","cksum":"1 2","tables":{"Bridge":{"columns":{"name":{"type":"string"}}}}}'
        record '{"_date":1700000000000,"_comment":"a"}'
        record '{"_date":1700000000001,"_comment":"b"}'
    } | put etc/openvswitch/conf.db
    # The virtual addresses.
    local pod
    for pod in keepalived haproxy; do
        echo 'kind: Pod' | put etc/kubernetes/manifests/$pod.yaml
    done
    echo x | put $pods/keepalived/keepalived.conf.tmpl
    echo x | put $pods/haproxy/haproxy.cfg.tmpl
    put etc/keepalived/keepalived.conf <<-'END'
	vrrp_script chk_ocp_lb {
	    script "/usr/bin/timeout 1.9 /etc/keepalived/chk_ocp_script.sh"
	    weight 20
	}
	vrrp_instance c_API_0 {
	    state BACKUP
	    interface ens3
	    unicast_src_ip 192.0.2.11
	    unicast_peer {
	        192.0.2.12
	    }
	    virtual_ipaddress {
	        192.0.2.5/32 label vip
	    }
	    track_script {
	        chk_ocp_lb
	    }
	}
	END
    printf '#!/bin/bash\n' | put etc/keepalived/chk_ocp_script.sh
    chmod 0755 etc/keepalived/chk_ocp_script.sh
    printf 'backend masters\n   server a 192.0.2.11:6443 weight 1\n   server b 192.0.2.12:6443 weight 1\n' | put etc/haproxy/haproxy.cfg
    put etc/NetworkManager/system-connections/ens3.nmconnection <<-'END'
	[connection]
	id=ens3
	type=ethernet
	interface-name=ens3
	[ipv4]
	method=manual
	address1=192.0.2.11/24,192.0.2.1
	dns=192.0.2.1;
	END
    chmod 0600 etc/NetworkManager/system-connections/ens3.nmconnection
    printf '[Service]\nEnvironment="KUBELET_NODE_IP=192.0.2.11" "KUBELET_NODE_IPS=192.0.2.11"\n' |
        put etc/systemd/system/kubelet.service.d/20-nodenet.conf
    # The real etcd writes its data, where it is installed; in a network of its own.
    if command -v etcd >/dev/null && command -v curl >/dev/null; then
        unshare --net bash -euo pipefail -s "$PWD/var/lib/etcd" <<-'END'
	ip link set lo up
	etcd --name master-0 --data-dir "$1" --snapshot-count 20 >"$1.log" 2>&1 &
	trap 'kill $! 2>/dev/null || true' EXIT
	until curl --silent --fail http://127.0.0.1:2379/health >/dev/null; do kill -0 $!; sleep 0.1; done
	for number in $(seq 60); do
	    key=$(printf 'key%s' "$number" | base64)
	    curl --silent --fail http://127.0.0.1:2379/v3/kv/put --data "{\"key\": \"$key\", \"value\": \"$key\"}" >/dev/null
	done
	kill $!
	wait || true
	END
        rm -f var/lib/etcd.log
    fi
}

# Each way: its name, the words that tell the cause to a person, and the accident.
ways() {
    way 'file-edited' 'pool.conf' && echo 'by hand' >>etc/pool.conf
    way 'file-emptied' 'empty' && : >etc/pool.conf
    way 'file-deleted' 'other.conf' && rm etc/other.conf
    way 'mode-changed' 'other.conf' && chmod 0777 etc/other.conf
    way 'record-emptied' "daemon's record" && : >etc/machine-config-daemon/currentconfig
    way 'record-garbage' "daemon's record" && head -c 300 /dev/zero >etc/machine-config-daemon/currentconfig
    way 'keys-lost' 'login' && rm -r home/core/.ssh
    way 'keys-owner' 'core' && chown 12345 home/core/.ssh/authorized_keys
    way 'kubeconfig-emptied' 'kubeconfig' && : | put etc/kubernetes/kubeconfig
    way 'first-boot-again' 'first boot' && cp etc/machine-config-daemon/currentconfig etc/ignition-machine-config-encapsulated.json
    way 'policy-rejects' 'policy' && echo '{"default": [{"type": "reject"}]}' >etc/containers/policy.json
    way 'pull-secret-garbage' 'pull secret' && echo '{"auths": ' >$kubelet/config.json
    way 'connection-emptied' 'connection' && : >etc/NetworkManager/system-connections/ens3.nmconnection
    way 'bridge-half' 'br-ex' && for name in br-ex ovs-if-br-ex; do
        printf '[connection]\nid=%s\ntype=ovs-bridge\n' "$name" >"etc/NetworkManager/system-connections/$name.nmconnection"
        chmod 0600 "etc/NetworkManager/system-connections/$name.nmconnection"
    done
    way 'keyfile-garbage' 'NetworkManager' && echo '<html>' >etc/NetworkManager/system-connections/ens3.nmconnection
    way 'unit-file-for-link' 'kubelet.service' && {
        rm -f etc/systemd/system/multi-user.target.wants/kubelet.service
        echo '[Unit]' | put etc/systemd/system/multi-user.target.wants/kubelet.service
    }
    way 'kubelet-config-garbage' 'kubelet' && echo '{' | put etc/kubernetes/kubelet.conf
    way 'name-servers-lost' 'name server' && : >etc/resolv.conf
    way 'host-name-local' 'no name' && echo localhost.localdomain >etc/hostname
    way 'disk-cloned' 'master-0' && echo master-7 >etc/hostname
    way 'address-changed' 'address' && sed -i 's/192.0.2.11/192.0.2.77/' etc/NetworkManager/system-connections/ens3.nmconnection
    way 'checkpoint-emptied' 'allocated_pods_state' && : >$kubelet/allocated_pods_state
    way 'checkpoint-bit' 'allocated_pods_state' && sed -i 's/4-6/4-7/' $kubelet/allocated_pods_state
    way 'power-cut-images' 'images' && rm var/lib/crio/clean.shutdown
    way 'layers-truncated' 'images' && truncate -s 20 $store/overlay-layers/layers.json
    way 'layer-lost' 'images' && rm -r $store/overlay/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    way 'link-emptied' 'images' && : >$store/overlay/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb/link
    way 'manifest-lost' 'etcd' && rm etc/kubernetes/manifests/etcd-pod.yaml
    way 'manifest-emptied' 'kube-apiserver' && : >etc/kubernetes/manifests/kube-apiserver-pod.yaml
    way 'key-emptied' 'kube-apiserver' && : >$pods/kube-apiserver-certs/secrets/localhost-serving-cert-certkey/tls.key
    way 'key-of-another' 'key' && cp $pods/kube-apiserver-certs/secrets/{aggregator-client,kubelet-client}/tls.key
    way 'revision-half' 'kube-controller-manager' && rm -r $pods/kube-controller-manager-pod-8
    way 'etcd-certificate-old' 'etcd' && expired /CN=etcd $pods/etcd-certs/secrets/etcd-all-certs/etcd-peer-master-0
    way 'kubelet-certificate-old' 'kubelet' && {
        expired /O=system:nodes/CN=system:node:master-0 $kubelet/pki/new
        cat $kubelet/pki/new.crt $kubelet/pki/new.key >"$kubelet/pki/$(basename "$(readlink $kubelet/pki/kubelet-client-current.pem)")"
        rm $kubelet/pki/new.crt $kubelet/pki/new.key
    }
    way 'etcd-database-cut' 'etcd' && truncate -s 9000 var/lib/etcd/member/snap/db
    way 'etcd-metas-zeroed' 'etcd' && dd if=/dev/zero of=var/lib/etcd/member/snap/db bs=4096 count=2 conv=notrunc status=none
    way 'etcd-log-bit' 'etcd' && {
        local log
        log=$(newest var/lib/etcd/member/wal '0*.wal')
        overwrite "$log" "$(LC_ALL=C grep --only-matching --byte-offset --text --max-count 1 key9 "$log" | head -1 | cut -d: -f1)" X
    }
    way 'etcd-log-lost' 'etcd' && rm "$(newest var/lib/etcd/member/wal '0*.wal')"
    way 'switch-database-emptied' 'vSwitch' && : >etc/openvswitch/conf.db
    way 'switch-database-bit' 'vSwitch' && sed -i 's/Open_vSwitch/Open_vSwitcH/' etc/openvswitch/conf.db
    way 'virtual-address-config' 'keepalived' && : >etc/keepalived/keepalived.conf
    way 'balancer-manifest' 'haproxy' && rm etc/kubernetes/manifests/haproxy.yaml
    way 'crio-config-garbage' 'CRI-O' && echo '[crio.runtime' | put etc/crio/crio.conf.d/99-own
    :
}

# A certificate that expired in 2024, with its key: PAIR.crt and PAIR.key.
expired() {
    local name=$1 pair=$2 work
    work=$(mktemp -d)
    : >"$work/index"
    printf '[ca]\ndefault_ca=own\n[own]\ndatabase=%s/index\nnew_certs_dir=%s\nserial=%s/serial\nrand_serial=yes\ndefault_md=sha256\npolicy=any\n[any]\n' \
        "$work" "$work" "$work" >"$work/config"
    printf 'organizationName=optional\ncommonName=supplied\n' >>"$work/config"
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$name" -keyout "$pair.key" -out "$work/request" 2>"$work/log"
    openssl ca -batch -notext -selfsign -config "$work/config" -keyfile "$pair.key" -in "$work/request" -out "$pair.crt" \
        -startdate 20240101000000Z -enddate 20240201000000Z 2>>"$work/log"
    rm -r "$work"
}

wanted=$1
case $wanted in
    list)
        way() {
            printf '%s\t%s\n' "$1" "$2"
            return 1
        }
        ways
        ;;
    *)
        cd "$2"
        if [[ $wanted == furnish ]]; then
            furnish
        else
            found=
            way() {
                [[ $1 == "$wanted" ]] || return 1
                found=yes
            }
            ways
            [[ -n $found ]] || { echo "no such way: $wanted" >&2; exit 2; }
        fi
        ;;
esac
