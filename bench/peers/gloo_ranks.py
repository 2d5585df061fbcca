"""Starts two or more ranks over Gloo on one host, for the peers' benchmarks, and returns rank 0's result. A process that has
RANK in its environment is a rank already, beside others that torchrun, or bench/links.py, has started."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def _rank(rank, function, size, port, threads, queue, arguments):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(threads)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    result = function(rank, *arguments)
    if rank == 0:
        queue.put(result)
    dist.barrier()
    dist.destroy_process_group()


def run(function, size, threads, *arguments):
    """Runs function(rank, *arguments) on `size` processes of `threads` threads; returns rank 0's value. A rank that was
    started already returns its own."""
    if "RANK" in os.environ:
        torch.set_num_threads(threads)
        dist.init_process_group("gloo")
        result = function(dist.get_rank(), *arguments)
        dist.barrier()
        dist.destroy_process_group()
        return result
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    queue = mp.get_context("spawn").SimpleQueue()
    ranks = mp.spawn(_rank, (function, size, port, threads, queue, arguments), nprocs=size, join=False)
    while queue.empty():
        if ranks.join(timeout=0.1):
            break
    result = queue.get()
    ranks.join()
    return result
