# CUDA threads of the emulator in gdb:   source cuda_kernels/emulator/cuda_threads.py
#
#   cuda threads     how many threads of the block wait where
#   cuda bt 37       the stack of thread 37 of the block, while it waits
#
# The thread that runs is the one gdb shows anyway; `break softmax_kernel if threadIdx.x == 37 && blockIdx.x == 2` works,
# because the built-in variables are real ones. Needs a build with debug information; x86-64 only (it knows how fcontext
# saves registers).
import gdb

WARP = 32
# The offsets of the registers that jump_fcontext saves on the stack that it leaves (boost/context, x86_64 SysV ELF).
SAVED = {"r12": 8, "r13": 16, "r14": 24, "r15": 32, "rbx": 40, "rbp": 48, "rip": 56}
FRAME_BYTES = 64


def block():
    pointer = gdb.parse_and_eval("ringgrad::emulator::running_block")
    if not pointer:
        raise gdb.GdbError("no CUDA block is running on this thread")
    return pointer.dereference()


def element(vector, index):
    return vector["_M_impl"]["_M_start"][index]


def length(vector):
    return int(vector["_M_impl"]["_M_finish"] - vector["_M_impl"]["_M_start"])


def state(b, thread):
    """The state of a thread, and the place where it waits."""
    warp = element(b["warps_"], thread // WARP)
    bit = 1 << thread % WARP
    if not int(warp["lanes"]) & bit:
        return "no thread"
    if int(warp["exited"]) & bit:
        return "exited"
    if thread == int(b["current_"]):
        return "running"
    if int(warp["ready"]) & bit:
        return "ready" if int(warp["started"]) & bit else "not started"
    waiting = element(b["threads_"], thread)
    site = waiting["waits_at"]
    file = site["file"].string().split("/")[-1]
    return "in %s at %s:%d" % (waiting["waits_in"].string(), file, int(site["line"]))


class Cuda(gdb.Command):
    """cuda threads | cuda bt THREAD: the CUDA threads of the block that runs on this thread."""

    def __init__(self):
        super().__init__("cuda", gdb.COMMAND_STACK)

    def invoke(self, text, _from_tty):
        words = text.split()
        b = block()
        if words[:1] == ["threads"]:
            groups = {}
            for thread in range(length(b["threads_"])):
                groups.setdefault(state(b, thread), []).append(thread)
            for what, threads in groups.items():
                print("%4d %s, the first is %d" % (len(threads), what, threads[0]))
        elif words[:1] == ["bt"] and len(words) == 2:
            self.backtrace(b, int(words[1]))
        else:
            raise gdb.GdbError("expected: cuda threads, or cuda bt THREAD")

    def backtrace(self, b, thread):
        what = state(b, thread)
        print("CUDA thread %d is %s" % (thread, what))
        if what == "running":
            gdb.execute("bt")
            return
        if what in ("exited", "not started"):
            return
        stack = int(element(b["threads_"], thread)["fiber"].dereference()["context_"])
        word = lambda offset: int(gdb.parse_and_eval("*(unsigned long*)%d" % (stack + offset)))
        names = list(SAVED) + ["rsp"]
        before = {name: int(gdb.parse_and_eval("(unsigned long)$" + name)) for name in names}
        try:
            values = {name: word(offset) for name, offset in SAVED.items()}
            gdb.execute("set $rsp=%d" % (stack + FRAME_BYTES), to_string=True)
            for name, value in values.items():
                gdb.execute("set $%s=%d" % (name, value), to_string=True)
            gdb.execute("bt")
        finally:
            for name, value in before.items():
                gdb.execute("set $%s=%d" % (name, value), to_string=True)


Cuda()
