"""mount(8), fstab and mount.reshardfs."""
import os
import shutil
import subprocess

import pytest

from conftest import PROGRAM, REPO
from living import as_root, clean, digest, FILE, mounted, needs_fuse, own_mounts, point, source  # noqa: F401

pytestmark = needs_fuse
HELPER = REPO / "mount-helpers" / "mount.reshardfs"


@pytest.fixture
def helper_env(tmp_path):
    """The helper finds the program that is tested first in PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "reshardfs").symlink_to(PROGRAM)
    return dict(os.environ, PATH="%s:%s" % (tmp_path / "bin", os.environ["PATH"]))


def help_mount(env, *words):
    return subprocess.run([HELPER, *words], env=env, capture_output=True, text=True)


@pytest.mark.parametrize("options, code, said", [
    ("rw,target=same", 0, ""), ("target=same,_netdev,x-a.b=c,user=me,noauto,defaults,rw", 0, ""),
    ("rw,traget=same", 1, "did you mean 'target'?"), ("rw", 1, "no target"),
    ("rw,target=same,beneath=/nowhere", 32, "/nowhere"),
])
def test_helper(options, code, said, source, point, helper_env):
    done = help_mount(helper_env, source, point, "-sv", "-o", options)
    assert done.returncode == code and said in done.stderr, done
    assert bool(mounted(point)) == (code == 0)


def test_helper_codes_and_fake(source, point, helper_env, tmp_path):
    assert help_mount(helper_env, source, tmp_path / "absent", "-o", "target=same").returncode == 32
    assert help_mount(helper_env, tmp_path / "absent", point, "-o", "target=same").returncode == 32
    assert help_mount(helper_env, source, point, "-f", "-n", "-o", "target=same").returncode == 0
    assert help_mount(helper_env, source, point, "-o", "target=same", "-t", "fuse.reshardfs", "-f").returncode == 0
    assert not mounted(point)
    assert help_mount(helper_env, source).returncode == 1


def test_helper_without_the_program(source, point, tmp_path):
    (tmp_path / "sbin").mkdir()
    helper = shutil.copy(HELPER, tmp_path / "sbin")
    if any(os.access(p, os.X_OK) for p in ("/usr/bin/reshardfs", "/usr/local/bin/reshardfs")):
        pytest.skip("reshardfs is installed")
    env = dict(os.environ, PATH="/usr/bin:/bin")
    done = subprocess.run([helper, source, point, "-o", "target=same"], env=env, capture_output=True, text=True)
    assert done.returncode == 2 and "reshardfs was not found" in done.stderr, done
    (tmp_path / "bin").mkdir()  # beside sbin, as in a prefix
    (tmp_path / "bin" / "reshardfs").symlink_to(PROGRAM)
    done = subprocess.run([helper, source, point, "-o", "target=same"], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and mounted(point), done


@as_root
@own_mounts
@pytest.mark.parametrize("kind", ["reshardfs", "fuse.reshardfs"])
def test_through_mount8(kind, source, point, tmp_path, digest):
    """mount -t, fstab, remount and umount as an administrator types them."""
    steps = """
        mount -t {kind} -o target=same,_netdev,nofail "$SOURCE" "$POINT"
        sha256sum "$POINT/{file}"
        mount -o remount,ro "$POINT"
        umount "$POINT"
        mount -T "$FSTAB" "$POINT"
        sha256sum "$POINT/{file}"
        if mount -t {kind} -o target=same "$SOURCE" "$POINT/rank_0" 2>/dev/null; then exit 99; fi
        umount "$POINT"
        mount -f -t {kind} -o target=same "$SOURCE" "$POINT"
        if mount -t {kind} -o traget=same "$SOURCE" "$POINT"; then exit 98; else echo "code $?"; fi
    """.format(kind=kind, file=FILE)
    fstab = tmp_path / "fstab"
    fstab.write_text("%s %s %s target=same,nofail,x-systemd.requires-mounts-for=/ 0 0\n" % (
        str(source).replace(" ", r"\040"), point, kind))
    prepare = "".join("ln -s %s /sbin/%s\n" % (HELPER, name) for name in ("mount.reshardfs", "mount.fuse.reshardfs"))
    done = in_own_sbin(prepare + steps, tmp_path, SOURCE=str(source), POINT=str(point), FSTAB=str(fstab))
    assert done.returncode == 0, done
    assert done.stdout.count(digest) == 2 and "code 1" in done.stdout and "did you mean" in done.stderr, done


def in_own_sbin(script, tmp_path, **env):
    """Run a script that may write to /sbin and /usr/local/bin: copies, gone with the script."""
    copy = """
        set -eu
        mkdir {0}/sbin
        mount -t tmpfs none {0}/sbin
        cp -a /sbin/. {0}/sbin/
        mount --bind {0}/sbin /sbin
        mount -t tmpfs none /usr/local/bin
        ln -s {1} /usr/local/bin/reshardfs
    """.format(tmp_path, PROGRAM)
    return subprocess.run(["unshare", "-m", "sh", "-c", copy + script], capture_output=True, text=True,
                          env=dict(os.environ, **env))
