// sum-choices.ts: what the nodes of a group may be asked to sum over.

/** `auto`: NCCL where all nodes can, else the links of the nodes, which is `stream`. */
export type SumsChoice = 'auto' | 'stream' | 'nccl'

/** What options may say. */
export const sumChoices: readonly SumsChoice[] = ['auto', 'stream', 'nccl']
