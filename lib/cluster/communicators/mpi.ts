// mpi.ts: ranks over Open MPI, each in a process that mpirun started: see mpi-launch.ts.
import { writeSync } from 'node:fs'
import { isIP } from 'node:net'
import { requireAddon } from '../../native.js'
import type { Fabric } from '../links/fabric.js'
import type { Communicator, RankOf } from './communicator.js'
import { type FabricNetwork, fabricNetworks } from './fabric-networks.js'
import { NativeCommunicator } from './native.js'

/** Names the line by which a rank tells its launcher that it joined. */
export const readyVariable = 'DGX_SPARK_MPI_READY'

/** What Open MPI is told to use: the IPv4 networks of an interface that are fabric, else the interface. */
export function mpiNetworks(name: string, networks: readonly FabricNetwork[]): string {
  const found = networks.filter(({ address }) => isIP(address) === 4).map(({ network }) => network)
  return found.length > 0 ? found.join(',') : name
}

/** Parameters of Open MPI that keep messages of ranks within these networks, over TCP, and within shared memory. */
export const mpiParameters = (name: string, networks: readonly FabricNetwork[]): Record<string, string> => ({
  OMPI_MCA_pml: 'ob1',
  OMPI_MCA_btl: '^openib,usnic,uct,ofi,smcuda',
  OMPI_MCA_btl_tcp_if_include: mpiNetworks(name, networks),
})

/**
 * Joins the world that mpirun started this process for.
 * @throws SparkError ERR_DENIED outside of the fabric; ERR_UNSUPPORTED without Open MPI 4 or 5; ERR_CONFLICT for a second
 * world in a process, another rank or another epoch than mpirun's; ERR_IO
 */
export async function joinMpi(
  rankOf: RankOf,
  { interface: name, fabric }: { interface: string; fabric: Fabric },
  timeoutMs: number,
): Promise<Communicator> {
  const networks = fabricNetworks('mpi', name, fabric)
  Object.assign(process.env, mpiParameters(name, networks))
  const { epoch, rank, world } = rankOf
  const handle = requireAddon().communicatorMpi({ epoch, rank, world, timeoutMs })
  const communicator = await NativeCommunicator.open('mpi', rankOf, handle)
  const ready = process.env[readyVariable]
  if (ready) writeSync(1, `${ready}\n`)
  return communicator
}
