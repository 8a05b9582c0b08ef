// local.ts: ranks within one process: plans, stages, workers.
import { requireAddon } from '../../native.js'
import type { Communicator, RankOf } from './communicator.js'
import { NativeCommunicator } from './native.js'

/** Joins the ranks of this process, its workers included, that join a world of the same name. */
export const joinLocal = (rankOf: RankOf, name: string, timeoutMs: number): Promise<Communicator> => {
  const { epoch, rank, world } = rankOf
  const handle = requireAddon().communicatorLocal({ name, epoch, rank, world, timeoutMs })
  return NativeCommunicator.open('local', rankOf, handle)
}
