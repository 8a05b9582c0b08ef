// sum-choices.ts: what the nodes of a group may be asked to sum over.

/** `auto`: NCCL where all nodes can, else the links of the nodes, which is `stream`. */
export const sumChoices = ['auto', 'stream', 'nccl'] as const

/** One of {@link sumChoices}. */
export type SumsChoice = (typeof sumChoices)[number]
