"""(torch, triton) pairs: rows out of judged attempts, without duplicates, without the benchmarks' problems, split by family."""
