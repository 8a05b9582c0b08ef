// mpi-daemon.ts: starts Open MPI's daemon for a job that another node launches. Its command comes over the link to that node,
// which is encrypted and whose peer is known, instead of by ssh.
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import type { Fabric } from '../links/fabric.js'
import type { FrameStream } from '../links/frame-stream.js'
import { fabricNetworks } from './fabric-networks.js'
import { mpiNetworks } from './mpi.js'
import { MpiProcess, makeFolder } from './mpi-processes.js'

/** The question that starts a daemon, and the one that ends those of an epoch. */
export const [startQuestion, stopQuestion] = ['mpi.start', 'mpi.stop']

/** What a node allows those whose jobs it takes part in. */
export interface MpiHostOptions {
  /** The interface of this node that messages of ranks go over. */
  readonly interface: string
  /** Networks that may carry plaintext. */
  readonly fabric: Fabric
  /** Throws where the node at the other end may not start ranks in this epoch. Default: every node of the cluster may. */
  readonly admit?: (nodeId: string, epoch: number) => void
}

const programs = ['orted', 'prted']
const maxWords = 400

/**
 * Takes part in jobs that the node at the other end of a link launches: starts `orted` of this machine, without a shell, and
 * ends it with the link. Those jobs run whatever that node tells them to run, as this user.
 */
export function hostMpi(link: FrameStream, options: MpiHostOptions): void {
  const { interface: name, fabric, admit = () => {} } = options
  const running = new Map<number, MpiProcess>()
  const stop = async (epoch: number): Promise<{ problem?: string }> => {
    const daemon = running.get(epoch)
    running.delete(epoch)
    const end = await daemon?.stop()
    return end && end.code !== 0 && !end.stopped ? { problem: end.words } : {}
  }
  link.handle(startQuestion, async params => {
    const { epoch, words } = (params ?? {}) as { epoch?: unknown; words?: unknown }
    if (!Number.isSafeInteger(epoch)) throw new SparkError('ERR_ARGUMENT', 'mpi.start has no epoch')
    admit(link.peer.nodeId, epoch as number)
    const networks = mpiNetworks(name, fabricNetworks('mpi', name, fabric))
    const [command, args] = daemonCommand(words, networks)
    await stop(epoch as number)
    const daemon = await MpiProcess.start({
      command,
      args,
      env: { ...process.env, ...daemonParameters(networks) },
      folder: await makeFolder(),
    })
    running.set(epoch as number, daemon)
    return {}
  })
  link.handle(stopQuestion, params => stop(Number((params as { epoch?: unknown } | null)?.epoch)))
  link.closed.then(() => Promise.all([...running.keys()].map(stop)))
}

/** Keeps daemons on these networks. Open MPI 5 has them from PRRTE, under other names. */
export const daemonParameters = (networks: string): Record<string, string> => ({
  OMPI_MCA_oob_tcp_if_include: networks,
  PRTE_MCA_prte_if_include: networks,
  OMPI_MCA_rtc_hwloc_vmhole: 'none', // else daemons of one kernel fail now and then
})

/**
 * Reads the command that mpirun hands to ssh: assignments of a shell, a daemon, its options. That daemon starts no others,
 * and talks over `networks` of this machine.
 * @throws SparkError ERR_DENIED for another program, and for words that no daemon has
 */
export function daemonCommand(words: unknown, networks: string): [command: string, args: string[]] {
  const denied = (why: string): SparkError => new SparkError('ERR_DENIED', `the command for mpi has ${why}`)
  if (!Array.isArray(words) || words.length > maxWords) throw denied(`no list of at most ${maxWords} words`)
  const plain = words.map(word => {
    if (typeof word !== 'string' || word.length > 4096) throw denied('a word that is no short text')
    return word.trim().replace(/^"(.*)"$/, '$1')
  })
  const start = plain.findIndex(word => programs.includes(path.basename(word)))
  if (start < 0) throw denied(`none of ${programs.join(', ')}`)
  const args = plain.slice(start + 1).filter(word => word !== '--daemonize')
  const odd = args.find(word => !/^[\w.,:;@/^=~+*()[\]-]*$/.test(word))
  if (odd !== undefined) throw denied(`the word ${JSON.stringify(odd)}`)
  const own = (word: string | undefined): string | undefined =>
    /_agent$/.test(word ?? '') ? 'false' : /_if_include$/.test(word ?? '') ? networks : undefined
  return [path.basename(plain[start]!), args.map((word, i) => own(args[i - 1]) ?? word)]
}
