// pipe.ts: an authenticated connection that carries bytes, whichever transport made it, and reads of known lengths from it.
import type { Duplex } from 'node:stream'
import { SparkError } from '../../core/errors.js'
import type { Peer } from '../trust/credentials.js'

/** Where a node listens. */
export interface Address {
  /** An IP address or name. */
  readonly host: string
  /** Of TCP, or of UDP with QUIC. */
  readonly port: number
}

/** What QUIC counted on its path. */
export interface PathStats {
  /** Packets that this node sent. */
  readonly sentPackets: number
  /** Those of them that were lost. */
  readonly lostPackets: number
}

/** A connection below a link. */
export interface Pipe {
  readonly duplex: Duplex
  /** Undefined until the peer's proof was checked, on transports without certificates of their own. */
  readonly peer: Peer | undefined
  /** Binds a proof to this connection: no other connection has the same bytes here. */
  readonly channel: Uint8Array
  readonly localAddress: string
  readonly remoteAddress: string
  pathStats?(): PathStats
}

/** `[2001:db8::1]:7000` or `10.0.0.1:7000`. */
export const formatAddress = ({ host, port }: Address): string =>
  host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`

/** An IPv4 address that a socket of both families shows as IPv6, without the prefix. */
export const plainAddress = (address: string | undefined): string => (address ?? '').replace(/^::ffff:/, '')

/**
 * Reads exactly `count` bytes of a stream that is paused, while `signal` allows.
 * @throws SparkError ERR_IO when the stream ends before
 */
export async function readExactly(duplex: Duplex, count: number, signal: AbortSignal): Promise<Buffer> {
  for (;;) {
    signal.throwIfAborted()
    const chunk: Buffer | null = count === 0 ? Buffer.alloc(0) : duplex.read(count)
    if (chunk?.length === count) return chunk
    if (chunk !== null || duplex.readableEnded || duplex.destroyed)
      throw new SparkError('ERR_IO', 'the peer closed the connection before it said who it is')
    await readable(duplex, signal)
  }
}

const waking = ['readable', 'end', 'close', 'error'] as const

/** Waits until a stream has bytes, ended or failed. */
function readable(duplex: Duplex, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (act: () => void): void => {
      for (const name of waking) duplex.off(name, woken)
      signal.removeEventListener('abort', aborted)
      act()
    }
    const woken = (error?: Error): void => settle(() => (error instanceof Error ? reject(error) : resolve()))
    const aborted = (): void => settle(() => reject(signal.reason))
    for (const name of waking) duplex.on(name, woken)
    signal.addEventListener('abort', aborted)
  })
}
