# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write files so that a reader sees the old or the new content, never half of it, and report a diff."""

from __future__ import annotations

import errno
import os
import tempfile


def current(path):
    """Content and mode of a file, or (None, None) when there is none."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read(), os.stat(path).st_mode & 0o7777
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None, None
        raise


def replace(path, content, mode):
    """Put content at path with mode, atomically; missing directories are made with mode 0700."""
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=directory, prefix=".new-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(content)
            os.fchmod(stream.fileno(), mode)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def difference(path, before, after, secret=False):
    """A diff entry as Ansible prints it; the content of a secret file is not shown."""
    if secret:
        before = before if before is None else "(secret, %d bytes)\n" % len(before)
        after = after if after is None else "(secret, %d bytes, new content)\n" % len(after)
    return {"before_header": path, "after_header": path, "before": before or "", "after": after or ""}
