#!/usr/bin/env python3
"""Measures the cost of the same bits, by `ringgrad bench same-bits`. Writes bench/results/same_bits_price.json.

    same_bits_price.py [SECONDS]     for each network and number of ranks (default 20); on an idle machine
"""

import sys

import results


def main():
    if len(sys.argv) > 2 or sys.argv[1:] and not sys.argv[1].isdigit():
        sys.exit(__doc__)
    rows = []
    for row in results.ringgrad("bench", "same-bits", "--seconds", *(sys.argv[1:] or ["20"]))["rows"]:
        low, high = row["ratio_quartiles"]
        ranks = f"{row['ranks']} ranks" if row["ranks"] > 1 else "one process"
        rows.append([f"{row['model']}, {ranks}, {row['shards']} shards", f"{row['plain_images_per_second']:,.0f}",
                     f"{row['images_per_second']:,.0f}", f"{100 * row['ratio']:.1f} % ({100 * low:.1f}–{100 * high:.1f})"])
    results.save("same_bits_price", f"Training steps with `--shards`, batch {row['batch']}, images per second",
                 ["", "plain", "with shards", "as fast as plain"], rows,
                 note="Plain means DistributedDataParallel on ranks, and the network alone in one process. Blocks of steps take "
                 "turns; the ratio compares neighbouring blocks, with its quartiles.")


if __name__ == "__main__":
    main()
