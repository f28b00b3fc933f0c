"""What NCCL's RAS service says of a job: who is dead, who does not answer, and how far every rank has got.

RAS runs in every process of a job since NCCL 2.24 and answers on a TCP port of the host
(docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html). Nothing is injected.
"""
