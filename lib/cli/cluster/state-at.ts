// state-at.ts: the state of the cluster, from the node that runs on this machine.
import type { ClusterState } from '../../cluster/node/cluster-state.js'
import type { WitnessedNote } from '../../cluster/node/witnesses.js'
import { SparkError } from '../../core/errors.js'

/** @throws SparkError ERR_IO where no node runs */
export const stateAt = (port: number): Promise<ClusterState> => told(port, 'state')

/** What other nodes hold of the audit log of the node. @throws SparkError ERR_IO where no node runs */
export const witnessedAt = (port: number): Promise<readonly WitnessedNote[]> => told(port, 'witnessed')

async function told<T>(port: number, what: string): Promise<T> {
  try {
    const response = await fetch(`http://127.0.0.1:${port}/api/${what}`, {
      signal: AbortSignal.timeout(5000),
    })
    return (await response.json()) as T
  } catch (cause) {
    const remedy = 'start one with dgx-spark up, or give its --state-port'
    throw new SparkError('ERR_IO', `no node tells its state at port ${port} of this machine: ${remedy}`, {
      cause,
    })
  }
}
