// for-plans.ts: communicators as plans take them: what JavaScript carries gets a handle of the addon.
import type { PlanCommunicator } from '../../kernels/kernels.js'
import { requireAddon } from '../../native.js'
import type { Communicator } from './communicator.js'

/** A rank as `Model.fromGraph` takes it. */
export interface PlanRank extends PlanCommunicator {
  /** Ends it, after the sums in progress. */
  leave(): Promise<void>
}

/**
 * A communicator for plans. One that JavaScript carries, such as `stream`, sums on the JavaScript thread while the plan waits on
 * another. Leaving it leaves the communicator.
 * @throws SparkError ERR_UNSUPPORTED without the addon
 */
export function forPlans(communicator: Communicator): PlanRank {
  if (communicator.native !== undefined) return communicator
  const { rank, world } = communicator
  const addon = requireAddon()
  const handle = addon.communicatorDelegate({ rank, world }, (number, values) => {
    communicator.allReduce(values).then(
      () => addon.communicatorSummed(handle, number, values),
      (error: Error) => addon.communicatorAbort(handle, error.message),
    )
  })
  return {
    ...{ rank, world, native: handle },
    abort(reason) {
      communicator.abort(reason)
      addon.communicatorAbort(handle, reason)
    },
    async leave() {
      await communicator.leave()
      await addon.communicatorCall(handle, 'leave', {})
    },
  }
}
