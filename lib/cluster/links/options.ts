// options.ts: limits of a link and their defaults.
import { argumentError, expectInteger, expectKnownOptions, expectSignal } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'

/** Limits of links. Both ends may differ: each keeps to the smaller limit. */
export interface LinkOptions {
  /** The longest payload, in bytes. Default 64 MiB. */
  maxFrameBytes?: number
  /** A frame begins only while fewer bytes than these wait at the receiver. Default 16 MiB. */
  windowBytes?: number
  /** And fewer frames than these. Default 1024. */
  windowFrames?: number
  /** Milliseconds until certificates and versions are exchanged, or the connection ends. Default 10 s. */
  handshakeMs?: number
  /** A link that was silent so long is asked for a sign of life; after three times that it ends. Default 10 s. */
  keepAliveMs?: number
  /** Milliseconds that a frame may take, besides those that its bytes take at 64 KiB/s. Default 30 s. */
  stallMs?: number
  /** Age at which a link goes on over a new connection, with new keys. Default 12 h. */
  rekeyMs?: number
  /** Bytes, of both directions, after which it does. Default 64 GB. */
  rekeyBytes?: number
  /** Ends the link. */
  signal?: AbortSignal
}

/** Limits with every default. */
export type LinkLimits = Required<Omit<LinkOptions, 'signal'>>

const defaults: LinkLimits = {
  maxFrameBytes: 64 << 20,
  windowBytes: 16 << 20,
  windowFrames: 1024,
  handshakeMs: 10_000,
  keepAliveMs: 10_000,
  stallMs: 30_000,
  rekeyMs: 12 * 3_600_000,
  rekeyBytes: 64e9,
}

const largest: LinkLimits = {
  maxFrameBytes: 1 << 30,
  windowBytes: 1 << 30,
  windowFrames: 1 << 20,
  handshakeMs: 600_000,
  keepAliveMs: 600_000,
  stallMs: 3_600_000,
  rekeyMs: 12 * 3_600_000,
  rekeyBytes: 64e9,
}

const names = Object.keys(defaults) as (keyof LinkLimits)[]

/**
 * Checks options and fills in the defaults.
 * @throws SparkError ERR_ARGUMENT
 */
export function linkLimits(options: LinkOptions, more: readonly string[] = []): LinkLimits {
  expectKnownOptions('options', options, [...names, 'signal', ...more])
  expectSignal('signal', options.signal)
  const limits = { ...defaults }
  for (const name of names) {
    const value = options[name]
    if (value === undefined) continue
    expectInteger(name, value, 1, largest[name])
    limits[name] = value
  }
  return limits
}

/** Refuses a choice that a transport has not. @throws SparkError ERR_UNSUPPORTED */
export function expectNoLocalAddress(transport: string, localAddress: string | undefined): void {
  if (localAddress === undefined) return
  throw new SparkError(
    'ERR_UNSUPPORTED',
    `${transport} cannot connect from localAddress ${localAddress}: leave it out, or use tls or tcp`,
  )
}

/**
 * Checks an address to connect to or to listen at.
 * @throws SparkError ERR_ARGUMENT
 */
export function expectAddress(name: string, value: unknown, minPort: number): void {
  const { host, port } = (value ?? {}) as { host?: unknown; port?: unknown }
  if (typeof host !== 'string' || host === '' || host.length > 255)
    throw argumentError(`${name}.host`, 'an address', host)
  expectInteger(`${name}.port`, port, minPort, 65535)
}
