# Sourced: makes the pinned CUDA tools of requirements.txt available.
#   CUDA         the root of the compiler, the assembler and the disassembler
#   OLD_PTXAS    an assembler of CUDA 11.8
# They are installed into a virtual environment in the user's cache, named after their hashes.
tools_root=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/cuda-$(sha256sum "$here/requirements.txt" | cut -c1-16)
if [ ! -e "$tools_root/complete" ]; then
  echo "installing the pinned CUDA tools (about 350 MB, once)" >&2
  rm -rf "$tools_root"
  python3 -m venv "$tools_root"
  "$tools_root/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --require-hashes -r "$here/requirements.txt"
  touch "$tools_root/complete"
fi
packages=$(echo "$tools_root"/lib/python3*/site-packages/nvidia)
CUDA=$packages/cu13
OLD_PTXAS=$packages/cuda_nvcc/bin/ptxas
for tool in "$CUDA/bin/nvcc" "$CUDA/bin/ptxas" "$CUDA/bin/nvdisasm" "$OLD_PTXAS"; do
  if [ ! -x "$tool" ]; then
    echo "missing: $tool" >&2
    exit 1
  fi
done
