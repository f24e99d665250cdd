"""``python -m kernelllm`` is the same as ``kernelllm``."""

from kernelllm.app.main import main

if __name__ == "__main__":
    main()
