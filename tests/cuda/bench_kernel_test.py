#!/usr/bin/env python3
"""`ringgrad bench kernel` without a GPU: bench_kernel_test.py RINGGRAD_COUNTED RINGGRAD. What it counts, against counts made by
hand; what it lists and prints; and what it says where it cannot."""

import json, os, pathlib, re, subprocess, sys, unittest

PLAIN = pathlib.Path(sys.argv.pop(2)).resolve()
COUNTED = pathlib.Path(sys.argv.pop(1)).resolve()


class BenchKernel(unittest.TestCase):
    def run_program(self, *words, code=0, devices="1", program=COUNTED):
        done = subprocess.run([program, "bench", "kernel", *words], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "RINGGRAD_CUDA_DEVICES": devices})
        self.assertEqual(done.returncode, code, f"{words}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")
        return done

    def document(self, *words):
        return json.loads(self.run_program(*words, "--json").stdout)

    def counts(self, *words):
        """The counts of each step, by its name."""
        return {row["name"]: row["counts"] for row in self.document(*words)["rows"]}

    # ---- counts, by hand -------------------------------------------------------------------------------------------

    def test_a_copy_asks_for_as_many_sectors_as_it_touches(self):
        steps = self.counts("copy", "--size", "1024", "--dtype", "fp32")
        # 1024 floats are 128 sectors. 32 threads with 32 floats each: one warp, at 32 distant places 32 times.
        # 1024 threads with one: 32 warps, 128 bytes each. 256 with four: 8 warps, 512 bytes each.
        for name, requests, sectors in (("runs", 32, 32 * 32), ("neighbours", 32, 128), ("vectorised", 8, 128)):
            for access in ("global_load", "global_store"):
                with self.subTest(step=name, access=access):
                    self.assertEqual(steps[name][access], {"requests": requests, "sectors": sectors, "bytes": 4096})
            self.assertEqual(steps[name]["shared_load"]["requests"], 0)

    def test_a_transpose_shows_strides_and_bank_conflicts(self):
        steps = self.counts("transpose", "--size", "32,32", "--dtype", "fp32")
        columns, tile, padded = (steps[name] for name in ("columns", "tile", "padded tile"))
        # 32 rows, a request each: read as 4 sectors, written as columns of 32.
        self.assertEqual((columns["global_load"]["requests"], columns["global_load"]["sectors"]), (32, 128))
        self.assertEqual((columns["global_store"]["requests"], columns["global_store"]["sectors"]), (32, 32 * 32))
        for step in (tile, padded):
            self.assertEqual((step["global_load"]["sectors"], step["global_store"]["sectors"]), (128, 128))
            self.assertEqual((step["shared_store"]["requests"], step["shared_store"]["passes"]), (32, 32))
            self.assertEqual((step["shared_load"]["requests"], step["shared_load"]["least_passes"]), (32, 32))
            self.assertEqual(step["instructions"], {"__syncthreads": 1})
        self.assertEqual(tile["shared_load"]["passes"], 32 * 32)  # a column of 32 rows of 32: one bank
        self.assertEqual(padded["shared_load"]["passes"], 32)

    def test_products_of_matrices(self):
        steps = self.counts("matmul", "--size", "64")
        # One block of four warps, two slices of 32 of K. Products: 64/16 × 64/8 × 64/16.
        for name in ("fragments", "ldmatrix", "padded rows", "stages"):
            self.assertEqual(steps[name]["instructions"]["mma.sync"], 4 * 8 * 4, name)
        # A warp's fragments of 16 of K: two of a, and four of b two at a time.
        for name in ("ldmatrix", "padded rows", "stages"):
            self.assertEqual(steps[name]["instructions"]["ldmatrix"], 4 * 4 * (2 + 2), name)
        for name, barriers in (("fragments", 4), ("padded rows", 4), ("stages", 2)):
            self.assertEqual(steps[name]["instructions"]["__syncthreads"], barriers, name)
        # A thread copies two chunks of a and two of b for each slice.
        self.assertEqual(steps["stages"]["instructions"]["cp.async"], 4 * 4 * 2)
        self.assertNotIn("cp.async", steps["padded rows"]["instructions"])
        # Eight rows of 64 bytes lie in 16 banks twice over; of 80 in different ones.
        self.assertGreater(steps["ldmatrix"]["shared_load"]["passes"], steps["ldmatrix"]["shared_load"]["least_passes"])
        for name in ("padded rows", "stages"):
            self.assertEqual(steps[name]["shared_load"]["passes"], steps[name]["shared_load"]["least_passes"], name)
        # c, of which a warp stores 8 rows of 16 bytes at a time: a sector each.
        self.assertEqual(steps["stages"]["global_store"], {"requests": 64, "sectors": 64 * 8, "bytes": 64 * 64 * 2})
        # Both operands are read once: in 16 bits 64 × 64 × 2 bytes each.
        self.assertEqual(steps["stages"]["global_load"]["sectors"], 2 * 64 * 64 * 2 // 32)

    # ---- the rest of what it says ----------------------------------------------------------------------------------

    def test_the_floor_is_that_of_a_data_sheet(self):
        document = self.document("matmul", "--step", "3", "--size", "64", "--dtype", "fp32")
        self.assertEqual((document["card"], document["emulated"]), ("H200", True))
        (row,) = document["rows"]
        self.assertEqual((row["step"], row["name"], row["dtype"]), (3, "shared tile", "float32"))
        self.assertEqual((row["bytes"], row["operations"]), (3 * 64 * 64 * 4, 2 * 64**3))
        self.assertAlmostEqual(row["floor_us"], max(row["bytes"] / 4.8e6, row["operations"] / 67e6))
        self.assertEqual(row["floor_by"], "bytes")
        self.assertNotIn("microseconds", row)  # emulated, it means nothing
        self.assertAlmostEqual(row["moved"], 32 * sum(row["counts"][f"global_{access}"]["sectors"]
                                                      for access in ("load", "store")) / row["bytes"])

    def test_one_step_is_told_line_by_line(self):
        done = self.run_program("transpose", "--step", "tile", "--size", "32,32", "--dtype", "fp32")
        self.assertIn("step 2: 32 × 32 elements", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^copy_ladder\.cu:\d+ +shared load +32  32\.00 passes, 1\.00 at least$")
        self.assertRegex(done.stdout, r"(?m)^copy_ladder\.cu:\d+ +global store +32  4\.00 sectors, 128 B$")
        self.assertIn("1 launch, 1 block, 256 threads; __syncthreads 1", done.stdout)
        self.assertIn("no times", done.stderr)
        self.assertIn("fp32 [32, 32] → [32, 32]: 8.2 kB at least: 0.001707 µs on an H200, by its bytes", done.stdout)

    def test_all_steps_are_a_table(self):
        done = self.run_program("matmul", "--size", "64")
        rows = re.findall(r"(?m)^ ?(\d+) (\S.*?) +(bf16|fp32) ", done.stdout)
        self.assertEqual([int(number) for number, _, _ in rows], [*range(1, 11), 15])
        self.assertEqual([dtype for _, name, dtype in rows if name == "vectorised"], ["fp32"])  # it takes nothing else
        self.assertEqual({dtype for _, name, dtype in rows if name != "vectorised"}, {"bf16"})

    def test_the_list(self):
        listed = json.loads(self.run_program("--json", devices="0").stdout)["kernels"]
        self.assertEqual([ladder["kernel"] for ladder in listed],
                         ["batch_norm_stats", "conv2d", "conv2d_backward_input", "conv2d_backward_weight", "copy", "matmul",
                          "sum", "transpose"])
        said = self.run_program(devices="0").stdout
        for ladder in listed:
            for step in ladder["steps"]:
                self.assertIn(f"  {step['step']:>2}  {step['name']}", said)
                self.assertIn(step["idea"], said)

    def test_mistakes_are_answered(self):
        def says(pattern, *words, code=2, **options):
            self.assertRegex(self.run_program(*words, code=code, **options).stderr, pattern)

        says("no kernel 'matmull', expected one of batch.*, transpose. Did you mean 'matmul'\\?", "matmull")
        says("matmul has no step 'stagse', expected one of 1 naive, .*. Did you mean 'stages'\\?", "matmul", "--step", "stagse")
        says("matmul has no step '21', expected one of 1 naive, 2 coalesced", "matmul", "--step", "21")
        says("--size 3 of transpose, expected 2 positive numbers: rows,columns, such as 128,128", "transpose", "--size", "3")
        says("--size 0 of copy", "copy", "--size", "0")
        says("--dtype is 'int8', expected one of bf16, fp16, fp32", "copy", "--dtype", "int8")
        says("step 'stages' of matmul refuses --size 65 in bf16 and fp32, expected a size such as 256", "matmul", "--step",
             "stages", "--size", "65")
        says("--size 10000000000: .* too many elements", "matmul", "--size", "10000000000")
        says("out of memory on cuda:0", "matmul", "--size", "40000", code=7)
        says("no option '--stepp'. Did you mean '--step'\\?", "matmul", "--stepp", "1")
        says("no cuda device", "matmul", code=3, devices="0")
        says("has no CUDA kernels; `./go bench kernel` builds and runs one", "matmul", code=3, program=PLAIN)


if __name__ == "__main__":
    unittest.main()
