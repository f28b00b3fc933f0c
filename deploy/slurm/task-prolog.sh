#!/bin/sh
# Slurm task prolog (TaskProlog= in slurm.conf): watches every rank that a job starts with srun, unless the job was
# submitted with ARGUS_DISABLE=1. What it prints as `export NAME=value` becomes the task's environment; it prints
# nothing where the host has no folder of an exporter or no ARGUS, and always ends well: the task starts.
#
# ARGUS_ROOT: where argus_core and argus_training lie; by default site-packages of the exporter's environment /opt/argus,
# whichever Python made it.
for found in /opt/argus/lib/python3.*/site-packages; do
  [ -d "$found/argus_training" ] && ARGUS_ROOT=${ARGUS_ROOT:-$found}
done
ARGUS_SOCKET=${ARGUS_SOCKET:-/run/argus/exporter.sock}
boot=$ARGUS_ROOT/argus_training/boot

[ "${ARGUS_DISABLE:-0}" = 1 ] && exit 0
# The folder, not the socket: an exporter that restarts now is found by its ranks when it is back.
[ -d "${ARGUS_SOCKET%/*}" ] && [ -d "$boot" ] || exit 0

# Steps of one allocation may run side by side, and are jobs of their own; the first, and the shell of salloc (a number
# beyond all others), have the plain name. A name that the job was given stays.
name=${SLURM_JOB_NAME:-slurm}-${SLURM_JOB_ID:-0}
step=${SLURM_STEP_ID:-0}
if [ "${ARGUS_JOB:-$name}" = "$name" ]; then
  ARGUS_JOB=$name
  [ "$step" -gt 0 ] && [ "$step" -lt 4294967000 ] && ARGUS_JOB=$name.$step
fi

echo "export ARGUS_SOCKET=$ARGUS_SOCKET"
echo "export ARGUS_JOB=$ARGUS_JOB"
case ":${PYTHONPATH:-}:" in
  *":$boot:"*) ;;
  *) echo "export PYTHONPATH=$boot${PYTHONPATH:+:$PYTHONPATH}" ;;
esac
# No CUDA_INJECTION64_PATH: the producer sets it in each rank, where its C library can load ours; a task may run in
# a container whose library is older than this host's.
exit 0
