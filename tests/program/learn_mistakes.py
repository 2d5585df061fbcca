"""Typical mistakes in the exercises of `ringgrad learn`, as changes of the engine's own files. For each exercise: (the
mistake, [(the engine's text, which occurs once, the learner's text)], the grader's words)."""

MISTAKES = {
    "ring reduce-scatter": [
        (
            "the own chunk goes first, so rank r ends up with chunk r + 1",
            [
                ("wrapped(rank - step - 2, size)", "wrapped(rank - step - 1, size)"),
            ],
            r"four ranks with four numbers[\s\S]*has \[4444\][\s\S]*expected:[\s\S]*has \[1111\]",
        ),
        ("one step too few", [("last = size - 2", "last = size - 3")], "four ranks with four numbers"),
        (
            "finish() is left out: no average",
            [
                (
                    "reduction.finish(result.at(s.begin), partial.at(s.begin), s.count(), size)",
                    "std::memcpy(result.at(s.begin), partial.at(s.begin), s.count() * reduction.item_bytes)",
                )
            ],
            "an average is divided",
        ),
        (
            "partial results are taken for elements",
            [
                (
                    "const auto combine = step == 0 ? reduction.combine_items : reduction.combine_wide",
                    "const auto combine = reduction.combine_items",
                )
            ],
            "16-bit floats",
        ),
        (
            "receives before it sends: all wait for each other",
            [
                (
                    "  for_each_turn(segments, last",
                    "  std::byte first[8];\n  messages.recv(left, first);\n  for_each_turn(segments, last",
                )
            ],
            "threw|8 seconds",
        ),
        (
            "no segments",
            [("segment_items(segment_bytes, reduction, count)", "std::max<size_t>(count, 1)")],
            "a segment has at most",
        ),
        (
            "everything goes to both neighbours",
            [
                (
                    "before = messages.send(right, partial.part(s));",
                    "messages.send(left, {}), before = messages.send(right, partial.part(s));",
                )
            ],
            "threw|sends to rank",
        ),
        (
            "errors are swallowed",
            [
                ("  messages.finish();", "  } catch (...) {}"),
                ("  for_each_turn(segments", "  try {\n  for_each_turn(segments"),
            ],
            "returned as if nothing had happened",
        ),
    ],
    "ring all-gather": [
        (
            "the same part is sent in each step",
            [
                (
                    "messages.send(right, whole.subspan(s.begin, s.count()))",
                    "messages.send(right, place(rank).subspan(s.begin, s.count()))",
                )
            ],
            r"four ranks[\s\S]*sends    1,    1,    1",
        ),
        (
            "the own part is not put into its place",
            [
                ("if (!x.empty()) std::memmove(place(rank).data(), x.data(), x.size());", ""),
                (
                    "messages.send(right, whole.subspan(s.begin, s.count()))",
                    "messages.send(right, std::span<const std::byte>(step < 0 ? x : whole).subspan(s.begin, s.count()))",
                ),
            ],
            "-1",
        ),
        (
            "it goes round once more than it must",
            [("if (step < last) messages.send", "messages.send")],
            "bytes|expected|threw",
        ),
        (
            "all parts are taken to be as large as the own",
            [("{0, whole.size()}", "{0, place(rank).size()}")],
            "different sizes",
        ),
        (
            "no segments",
            [("{0, whole.size()}, segment_bytes, i", "{0, whole.size()}, kWholeChunk, i")],
            "a segment has at most",
        ),
    ],
    "bucket plan": [
        (
            "caps are floors: the tensor that takes a bucket over its cap still goes in",
            [("if (end - open.begin > cap()) close();", "if (open.end - open.begin >= cap()) close();")],
            "expected|over its cap",
        ),
        (
            "the first bucket has no cap of its own",
            [("buckets.empty() ? caps.first_bytes : caps.bytes", "caps.bytes")],
            "over its cap",
        ),
        (
            "a large tensor is not split",
            [("for (; end - open.begin > cap(); close()) {", "for (; false; close()) {")],
            "larger than a bucket",
        ),
        (
            "the last bucket is forgotten",
            [("    open.end = end;\n  }\n  close();\n", "    open.end = end;\n  }\n")],
            "five parameters",
        ),
        (
            "a split parameter belongs to its first bucket only",
            [
                (
                    "open.parameters = {arena.parameters[k]};",
                    "if (open.begin == arena.offsets[k]) open.parameters = {arena.parameters[k]};",
                )
            ],
            "larger than a bucket",
        ),
    ],
    "gradient-ready hook": [
        (
            "a second backward replaces the first gradient",
            [
                (
                    "kernels::add(meta.grad, meta.grad, like_leaf);",
                    "kernels::copy(meta.grad, like_leaf);",
                )
            ],
            "gradients are added up",
        ),
        (
            "the sum lies elsewhere",
            [
                (
                    "  else if (begin_adding(leaf))\n    kernels::copy(meta.grad, like_leaf);\n  else\n    kernels::add(meta.grad, meta.grad, like_leaf);\n",
                    "  else {\n    const Tensor sum = copy_of(meta.grad, {leaf.dtype(), leaf.device()});\n    kernels::add(sum, sum, like_leaf);\n    meta.grad = sum;\n  }\n",
                )
            ],
            "elsewhere in memory",
        ),
        (
            "a gradient that others hold becomes the leaf's own",
            [("fits && g.is_sole_owner() && g.is_contiguous()", "fits")],
            "one and the same memory",
        ),
        (
            "hooks first",
            [
                (
                    "    if (!arrived_at_home(leaf, grads[0])) accumulate(leaf, grads[0]);\n    run_hooks(leaf);",
                    "    run_hooks(leaf);\n    if (!arrived_at_home(leaf, grads[0])) accumulate(leaf, grads[0]);",
                )
            ],
            "when the gradient is complete",
        ),
        ("no hooks at all", [("    hook(leaf);\n", "")], "hooks run once"),
        (
            "hooks added by a hook run at once",
            [("const int end = meta->next_hook;", "const int end = 1 << 30;")],
            "ol\\|la",
        ),
        (
            "a hook's error is swallowed",
            [("    hook(leaf);\n", "    try {\n      hook(leaf);\n    } catch (...) {\n    }\n")],
            "a hook threw",
        ),
    ],
    "backward of a linear layer": [
        (
            "db is the first row",
            [
                (
                    "wants_db ? sum_to(dy, {dy.size(1)}) : Tensor()",
                    "wants_db ? dy.as_strided({dy.size(1)}, {dy.strides()[1]}, 0) : Tensor()",
                )
            ],
            r"db\[",
        ),
        (
            "dw is transposed",
            [
                (
                    "matrix_product(swapped_matrix(dy), x, {}, home.claim())",
                    "matrix_product(swapped_matrix(x), dy)",
                )
            ],
            "dw|shape",
        ),
        (
            "w is transposed in dx",
            [("w ? matrix_product(dy, w)", "w ? matrix_product(dy, swapped_matrix(w))")],
            "dx|sizes|matmul|threw",
        ),
        (
            "what has not been saved is used",
            [
                (
                    "x ? matrix_product(swapped_matrix(dy), x, {}, home.claim()) : Tensor()",
                    "matrix_product(swapped_matrix(dy), x, {}, home.claim())",
                )
            ],
            "signal|only .* requires a gradient",
        ),
        ("no db", [("wants_db ? sum_to(dy, {dy.size(1)}) : Tensor()", "Tensor()")], "db was wanted"),
    ],
    "distributed sampler": [
        ("blocks instead of turns", [("rank + i * num_replicas", "rank * mine + i")], "eight samples"),
        (
            "the position is forgotten",
            [("place < left ? position + place : (place - left) % size", "place % size")],
            "middle of an epoch",
        ),
        ("filled up with the last sample", [("(place - left) % size", "size - 1")], "five samples"),
        (
            "filled up from what is left",
            [("(place - left) % size", "position + (place - left) % left")],
            "middle of an epoch",
        ),
        (
            "ranks differ by one",
            [("(options.pad ? 0 : rank)", "rank")],
            "five samples",
        ),
        (
            "drop_last is not looked at",
            [("if (options.drop_last) return left / num_replicas;", "")],
            "last round left out",
        ),
    ],
    "weighting of unequal batches": [
        (
            "a plain mean",
            [("return weight / usual;", "return 1;"), ("return usual / (sum_of_weights / ranks);", "return 1;")],
            "30, 10",
        ),
        (
            "the usual weight stays in",
            [("return usual / (sum_of_weights / ranks);", "return 1 / (sum_of_weights / ranks);")],
            "off by the usual weight",
        ),
        (
            "forgets that the average has divided by the ranks",
            [("usual / (sum_of_weights / ranks)", "usual / sum_of_weights")],
            "30, 10",
        ),
        (
            "whole samples on the way",
            [
                ("return weight / usual;", "return weight;"),
                ("return usual / (sum_of_weights / ranks);", "return 1 / (sum_of_weights / ranks);"),
            ],
            "exactly 1|float16",
        ),
    ],
    "naming the dead rank": [
        (
            "who ends first is to blame",
            [
                (
                    "return end.by_us ? 3 : only_noticed(end, status) ? 2 : killed(end) ? 0 : 1;",
                    "return 0 * only_noticed(end, status);",
                )
            ],
            "seen before|killed",
        ),
        ("victims of the launcher count", [("end.by_us ? 3 : only_noticed", "only_noticed")], "victims"),
        (
            "only exit codes tell who has noticed",
            [
                (
                    "if (status.failed_at != 0 && status.noticed) return true;  // however it ended after that",
                    "(void)status;",
                )
            ],
            "any exit code",
        ),
        (
            "only the words tell who has noticed",
            [
                (
                    "return !killed(end) && (exit_code(end) == kRankDied || exit_code(end) == kOutOfStep);",
                    "return false;",
                )
            ],
            "seen before|gives up|launcher's report",
        ),
        (
            "the time of the end counts, not that of the failure",
            [("reported != 0 ? reported : end.ended", "reported < 0 ? reported : end.ended")],
            "said so first",
        ),
    ],
    "sync batch norm": [
        (
            "the mean of the variances",
            [("mul(apart, apart)", "mul(apart, 0)")],
            "variance of channel",
        ),
        (
            "all ranks count alike",
            [("div(sum(mul(counts, means), 0), total)", "ringgrad::mean(means, 0)")],
            "1, 2, 6|3, 1",
        ),
        (
            "sums of squares",
            [("mul(apart, apart)", "sub(mul(means, means), mul(center, center))")],
            "variance of channel 2",
        ),
        ("divided by n - 1", [("squares), 0), total)", "squares), 0), total - 1)")], "variance"),
        (
            "backward forgets the units",
            [
                ("  kernels::affine(packed, packed, unit, 0);\n", ""),
                ("  if (unit != 0) kernels::affine(packed, packed, 1 / unit, 0);", "  (void)unit;"),
            ],
            "weigh 8, 2 and 1",
        ),
        (
            "backward takes the mean",
            [("ReduceOp::Sum, channel.options", "ReduceOp::Average, channel.options")],
            "weigh the same",
        ),
    ],
    "overlap": [
        (
            "a complete bucket leaves before those in front of it",
            [("pending[next] == 0", "(pending[next] == 0 || pending[next + 1] == 0)")],
            "waits for those before it|expected",
        ),
        (
            "everything is left to the end",
            [("  while (next + 1 < pending.size() && pending[next] == 0) ++next;\n", "  (void)pending;\n")],
            "three buckets",
        ),
        ("the last one leaves, too", [("next + 1 < pending.size()", "next < pending.size()")], "three buckets"),
        ("one bucket at a time", [("  while (next + 1", "  if (next + 1")], "waits for those before it"),
        (
            "a parameter counts for its first bucket only",
            [
                (
                    "    if (--pending[bucket] == 0) complete.push_back(bucket);",
                    "    if (bucket == buckets_of_parameter[0] && --pending[bucket] == 0) complete.push_back(bucket);",
                )
            ],
            "two buckets",
        ),
    ],
}
