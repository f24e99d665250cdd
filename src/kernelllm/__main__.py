"""``python -m kernelllm`` opens the interactive loop; with a verb it is the same as ``kernelllm``."""

import sys

from kernelllm.app.start import main

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.argv.append("repl")
    main()
