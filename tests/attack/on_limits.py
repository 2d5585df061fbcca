"""The machine gives less than was asked for: memory, descriptors, file sizes, processor time."""

import resource

REFUSED = (0, 1, 3, 5, 7, 8)


def _under(job, random, limit, value):
    job.write_data()
    ranks = random.choice((1, 2, 3))
    child = job.training(ranks, "auto", preexec_fn=lambda: resource.setrlimit(limit, (value, value)))
    return job.finish(child, *REFUSED, 127)  # the last: the system found no memory for the program's libraries


def address_space(job, random):
    _under(job, random, resource.RLIMIT_AS, random.randrange(30, 600) << 20)


def descriptors(job, random):
    _under(job, random, resource.RLIMIT_NOFILE, random.randrange(5, 60))


def file_size(job, random):
    _under(job, random, resource.RLIMIT_FSIZE, random.randrange(0, 700) << 10)
