"""Processes are known by pid and start time together."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from dev.devcluster import processes
from dev.devcluster.errors import ClusterError


def test_a_pid_with_another_start_time_is_not_ours() -> None:
    mine = processes.start_ticks(os.getpid())
    assert mine is not None
    assert processes.ProcessRecord("x", os.getpid(), mine).alive
    assert not processes.ProcessRecord("x", os.getpid(), mine + 1).alive


def test_a_zombie_counts_as_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.start_ticks(child.pid) is None
    child.wait()


def test_a_command_name_with_spaces_and_parentheses_is_read_right(tmp_path: Path) -> None:
    odd = tmp_path / "a) R (b"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(odd), "60"])
    try:
        plain = processes.start_ticks(os.getpid())
        found = processes.start_ticks(child.pid)
        assert plain is not None
        assert found is not None
        assert found >= plain
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def launcher(tmp_path: Path) -> processes.Launcher:
    """With an ordinary file in place of a cgroup's."""
    (tmp_path / "pids").mkdir()
    (tmp_path / "logs").mkdir()
    return processes.Launcher(tmp_path / "pids", tmp_path / "logs", tmp_path / "cgroup.procs")


def test_a_component_enters_its_cgroup_before_it_runs_and_is_on_record(launcher: processes.Launcher) -> None:
    script = f"cat {launcher.cgroup_procs}; exec sleep 60"
    record = launcher.start("etcd", ["/bin/sh", "-c", script])
    try:
        assert processes.read_records(launcher.records) == [record]
        assert record.alive
        while not launcher.log_tail("etcd"):
            assert record.alive
        assert launcher.log_tail("etcd") == str(record.pid)
    finally:
        os.kill(record.pid, 9)
        os.waitpid(record.pid, 0)
    assert not record.alive


def test_a_component_that_ends_at_once_is_reported_with_its_log(
    launcher: processes.Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    (launcher.logs / "etcd.log").write_text("why\n")
    monkeypatch.setattr(processes, "start_ticks", lambda pid: None)
    with pytest.raises(ClusterError, match="etcd ended at once:\nwhy"):
        launcher.start("etcd", ["/bin/true"])
    assert processes.read_records(launcher.records) == []


def test_the_end_of_a_log_is_shown_and_a_missing_one_is_said_to_be_missing(launcher: processes.Launcher) -> None:
    assert launcher.log_tail("etcd") == "(no log)"
    (launcher.logs / "etcd.log").write_text("\n".join(map(str, range(100))))
    assert launcher.log_tail("etcd", lines=2) == "98\n99"


def test_a_record_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"name": "a", "pi')
    (tmp_path / "b.json").write_text(json.dumps({"name": "b", "pid": 1, "started": 2}))
    (tmp_path / "c.json").write_text(json.dumps({"name": "c"}))
    assert processes.read_records(tmp_path) == [processes.ProcessRecord("b", 1, 2)]


def test_files_are_replaced_as_a_whole_and_secrets_stay_private(tmp_path: Path) -> None:
    target = tmp_path / "kubeconfig"
    processes.write_atomically(target, "secret", mode=0o600)
    assert target.read_text() == "secret"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["kubeconfig"]
