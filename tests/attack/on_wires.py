"""Connections between ranks are cut after so many bytes, and bits flipped: the library's own test, with other numbers."""


def wires(job, random):
    cases = "a connection that is cut*,with checksums*"
    job.run(cases, program=job.program.parent / "tests/all_tests", environment={"RINGGRAD_TEST_SEED": str(random.getrandbits(30))})
