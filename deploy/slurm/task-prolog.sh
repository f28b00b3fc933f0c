#!/bin/sh
# Slurm task prolog (TaskProlog= in slurm.conf): watches every rank that a job starts with srun, unless the job was
# submitted with ARGUS_DISABLE=1. What it prints as `export NAME=value` becomes the task's environment; it prints
# nothing where the host has no exporter or no ARGUS, and always ends well: the task starts.
#
# ARGUS_ROOT: where argus_core and argus_training lie; by default site-packages of the exporter's environment /opt/argus,
# whichever Python made it.
for found in /opt/argus/lib/python3.*/site-packages; do
  [ -d "$found/argus_training" ] && ARGUS_ROOT=${ARGUS_ROOT:-$found}
done
ARGUS_SOCKET=${ARGUS_SOCKET:-/run/argus/exporter.sock}
boot=$ARGUS_ROOT/argus_training/boot

[ "${ARGUS_DISABLE:-0}" = 1 ] && exit 0
[ -S "$ARGUS_SOCKET" ] && [ -d "$boot" ] || exit 0

echo "export ARGUS_SOCKET=$ARGUS_SOCKET"
echo "export ARGUS_JOB=${ARGUS_JOB:-${SLURM_JOB_NAME:-slurm}-${SLURM_JOB_ID:-0}}"
case ":${PYTHONPATH:-}:" in
  *":$boot:"*) ;;
  *) echo "export PYTHONPATH=$boot${PYTHONPATH:+:$PYTHONPATH}" ;;
esac
# No CUDA_INJECTION64_PATH: the producer sets it in each rank, where its C library can load ours; a task may run in
# a container whose library is older than this host's.
exit 0
