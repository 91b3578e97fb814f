"""Measures every case and writes the tables. Started by benches/run, in a mount namespace of its own."""

import fnmatch
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import images
import report
from configs import EXAMPLE, every_case, for_ignition
from lab import IGNITION, Contender, Failed, bytes_below, checked_files, flush, fresh_file_system, make_root, race
from lab import make_parser, spare_the_machine, spawn, spent, sprint


class Bench:
    """What all cases have in common."""

    def __init__(self, arguments):
        self.program, self.quick = arguments.program, arguments.quick
        self.work = arguments.work
        # Seconds for each comparison, and the most turns.
        self.budget, self.most = (1.5, 8) if arguments.quick else (6, 40)
        self.blocks = 5 if arguments.quick else 25
        self.results = report.Results()

    def start(self):
        """The shortest runs there are."""
        root = self.work / "node"
        make_root(root)
        spawn([self.program, "--root", str(root), "apply", "--yes", str(EXAMPLE)])
        version = [self.program, "--version"]
        idle = [self.program, "--root", str(root), "firstboot", "--kernel-arguments", "mco_rescue=auto"]
        ours, boot, nothing = sprint([version, idle, ["/bin/true"]], self.work, self.blocks)
        for name, command, times in (("--version", version, ours), ("firstboot", idle, boot)):
            weighed = Contender([command])
            weighed.weigh(self.work)
            floor = Contender([], times=nothing)
            self.results.add("start", name, Contender([], times=times, peak=weighed.peak), None, floor)
        self.results.binary = os.path.getsize(self.program)

    def image(self):
        """An OS image out of a repository onto a file system, and from there into another, beside `cp -a` of the objects."""
        with fresh_file_system(self.work, 1024 if self.quick else 8192) as mounted:
            root, out, copy, other = (mounted / name for name in ("root", "out", "copy", "other"))
            make_root(root)
            source = images.make_sibling(root, mounted, 100 if self.quick else 1500) / "objects"

            def fresh():
                for path in (out, copy):
                    shutil.rmtree(path, ignore_errors=True)
                flush(mounted)

            def fresh_repository():
                for path in (copy, other):
                    shutil.rmtree(path, ignore_errors=True)
                other.mkdir()
                images.ostree(other, "init", "--mode=bare")
                flush(mounted)

            def copied(prepare):
                return Contender([["cp", "-a", str(source), str(copy)], ["sync", "-f", str(mounted)]], prepare)

            export = [self.program, "--root", str(root), "image", "export", "--image", images.IMAGE, str(out)]
            contenders = self.raced([Contender([export], fresh), copied(fresh)])
            self.results.add("image", "export", contenders[0], None, contenders[1])
            fresh()
            spawn(export)
            load = images.import_command(other, out)
            contenders = self.raced([Contender([load], fresh_repository), copied(fresh_repository)])
            self.results.add("image", "import", contenders[0], None, contenders[1])

    def case(self, case):
        """One document: from nothing to applied, and again, and compared."""
        document = case.document(self.work)
        self.results.documents[case.name] = document.stat().st_size
        with fresh_file_system(self.work, case.room) as mounted:
            scene = Scene(self, case, document, mounted)
            self.results.add("apply", case.name, *self.raced(scene.apply()))
            self.results.spent[case.name] = scene.spent()
            self.results.add("plan", case.name, *self.raced(scene.plan()))
            self.results.add("verify", case.name, *self.raced(scene.verify()))
            self.results.add("again", case.name, *self.raced(scene.again()))
            self.results.add("status", case.name, *self.raced(scene.status()))
        if document.parent == self.work:
            document.unlink()

    def raced(self, contenders):
        """The same, measured."""
        race([contender for contender in contenders if contender], self.work, self.budget, self.most)
        return contenders


class Scene:
    """A document, a root in which it is applied already, and one that is made anew for each run."""

    def __init__(self, bench, case, document, mounted):
        self.bench, self.case, self.document = bench, case, str(document)
        self.work, self.mounted = bench.work, mounted
        self.model, self.root = mounted / "model", mounted / "root"
        make_root(self.model)
        spawn(self.ours(self.model, "apply", "--yes", self.document))
        # Relative paths keep ten thousand names within one command line.
        os.chdir(self.model)
        self.files = checked_files(self.model)

    def ours(self, root, *arguments):
        """A command line of ours."""
        return [self.bench.program, "--root", str(root), *arguments]

    def fresh(self):
        """Makes the root anew."""
        make_root(self.root)
        for name in ("ignition.cache", "ignition.state"):
            (self.work / name).unlink(missing_ok=True)

    def apply(self):
        """Ours, Ignition, and the floor: all of what a node has afterwards but our own state, unpacked and flushed."""
        tree = self.work / "tree.tar"
        spawn(["tar", "-C", str(self.model), "--exclude=./var/lib/mco-rescue", "-cf", str(tree), "."])
        unpack = [["tar", "-C", str(self.root), "-xf", str(tree)], ["sync", "-f", str(self.root)]]
        ours = [self.ours(self.root, "apply", "--yes", self.document)]
        return Contender(ours, self.fresh), self.ignition(), Contender(unpack, self.fresh)

    def spent(self):
        """What apply has to wait for."""
        command = self.ours(self.root, "apply", "--yes", self.document)
        return spent(command, self.fresh, self.mounted, bytes_below(self.model))

    def ignition(self):
        """Both stages of Debian's Ignition, which flushes nothing; None where it is not to be had."""
        if not (IGNITION.exists() and self.case.ignition):
            return None
        config = self.work / "config.ign"
        for_ignition(self.model / "etc/machine-config-daemon/currentconfig", config)
        stub_labels(self.work / "bin")
        return Contender([self.stage(config, "fetch"), self.stage(config, "files")], self.fresh_for_ignition)

    def fresh_for_ignition(self):
        """It wants a policy to label files by; what would label them is a stub."""
        self.fresh()
        (self.root / "etc/selinux/config").write_text("SELINUXTYPE=stub\n")
        flush(self.root)

    def stage(self, config, name):
        """One stage of Ignition."""
        command = ["env", f"PATH={self.work}/bin:{os.environ['PATH']}", f"IGNITION_CONFIG_FILE={config}", str(IGNITION)]
        command += ["--platform=file", f"--stage={name}", f"--root={self.root}", "--log-to-stdout"]
        return command + [f"--config-cache={self.work}/ignition.cache", f"--state-file={self.work}/ignition.state"]

    def plan(self):
        """What the whole of the document would change; nobody else does this."""
        self.fresh()
        return Contender([self.ours(self.root, "plan", self.document)]), None, None

    def verify(self):
        """Ours, checksums of the same files, and the floor: those files read."""
        shutil.rmtree(self.root, ignore_errors=True)
        sums = self.work / "sums"
        with open(sums, "w") as out:
            names = "\0".join(self.files)
            subprocess.run(["xargs", "-0", "sha256sum", "--"], input=names, text=True, stdout=out, check=True)
        check = Contender([["sha256sum", "--quiet", "-c", str(sums)]])
        return Contender([self.ours(self.model, "verify")]), check, Contender([["cat", "--", *self.files]])

    def again(self):
        """A second apply, which has nothing to do, beside `verify` of the same document."""
        again = Contender([self.ours(self.model, "apply", "--yes", self.document)])
        return again, None, Contender([self.ours(self.model, "verify", self.document)])

    def status(self):
        """What the node is in, and what the daemon will do with it; no other program tells this."""
        return Contender([self.ours(self.model, "status")]), None, None


def stub_labels(directory):
    """The labelling that Ignition calls, which has nothing to do."""
    directory.mkdir(exist_ok=True)
    stub = directory / "setfiles"
    stub.write_text("#!/bin/sh\ncat >/dev/null\n")
    stub.chmod(0o755)


def main():
    parser = make_parser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("case", nargs="*")
    arguments = parser.parse_args()
    # What `firstboot` tells the real root stays out of this machine's /run.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)

    spare_the_machine()
    bench = Bench(arguments)
    cases, real = every_case(arguments.quick)
    jobs = {"start": bench.start, "image": bench.image} | {case.name: partial(bench.case, case) for case in cases}
    for pattern in arguments.case:
        if not fnmatch.filter(jobs, pattern):
            raise SystemExit(f"benches/run: no case {pattern}; there are: {' '.join(jobs)}")
    if not real:
        bench.results.notes.append("SKIP: no real configs: there is no ../shared/data/rendered.")
    if not IGNITION.exists():
        bench.results.notes.append("SKIP: no Ignition to compare with (on Debian: apt-get install ignition).")
    failed = False
    for name, job in jobs.items():
        if not arguments.case or any(fnmatch.fnmatchcase(name, pattern) for pattern in arguments.case):
            print(name, flush=True)
            try:
                job()
            except Failed as problem:
                # The others are measured all the same.
                failed = True
                bench.results.notes.append(f"FAILED: {name}: {problem}")
            # Each time, so that a run that is cut short leaves what it has measured.
            write(bench.results, arguments.results)
    print(f"\n{report.text(bench.results)}\nThis is in {arguments.results}/bench.md")
    if failed:
        raise SystemExit(1)


def write(results, directory):
    """Writes the tables, and those for the figures of a release."""
    (directory / "bench.md").write_text(report.text(results))
    (directory / "bench-manual.md").write_text(report.manual(results))


main()
