// echo-train.ts: how many UDP packets get lost: 200 small ones that the other node sends back. Their key is told over the
// link, so nobody else gets an answer, and an answer is as long as its question.
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { createSocket, type RemoteInfo, type Socket } from 'node:dgram'
import { once } from 'node:events'
import { isIP } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { SparkError } from '../../core/errors.js'
import type { FrameStream } from './frame-stream.js'

/** Packets of a train. */
export const trainPackets = 200

const packetBytes = 64
const tagBytes = 16
const keyLifeMs = 30_000
const maxTrains = 16
const spacingMs = 2
const lingerMs = 1000

interface Train {
  readonly key: Buffer
  left: number
}

/**
 * Sends packets of nodes back that were given a key.
 * @example
 * const echo = new EchoResponder()
 * for await (const link of listener) answerMeasurements(link, echo)
 * await echo.close()
 */
export class EchoResponder {
  readonly #trains = new Map<string, Train>()
  /** One for each family of addresses. */
  readonly #sockets = new Map<string, Promise<Socket>>()

  /** Answers packets for whose key a node asks over this link. */
  answer(link: FrameStream): void {
    const host = link.addresses.remote.includes(':') ? '::' : '0.0.0.0'
    link.handle('echo', async () => {
      if (this.#trains.size >= maxTrains) throw new SparkError('ERR_BUSY', 'too many trains at once')
      const opened =
        this.#sockets.get(host) ?? openSocket(host, (bytes, from) => this.#heard(bytes, from, host))
      this.#sockets.set(host, opened)
      const socket = await opened
      const id = randomBytes(8)
      const key = randomBytes(32)
      this.#trains.set(id.toString('hex'), { key, left: trainPackets * 2 })
      setTimeout(() => this.#trains.delete(id.toString('hex')), keyLifeMs).unref()
      return { port: socket.address().port, id: id.toString('base64'), key: key.toString('base64') }
    })
  }

  /** Ends its sockets. */
  async close(): Promise<void> {
    for (const opened of this.#sockets.values()) (await opened).close()
    this.#sockets.clear()
    this.#trains.clear()
  }

  async #heard(bytes: Buffer, { address, port }: RemoteInfo, host: string): Promise<void> {
    if (bytes.length !== packetBytes) return
    const train = this.#trains.get(bytes.toString('hex', 0, 8))
    if (!train || train.left <= 0 || !isTagged(bytes, train.key)) return
    train.left--
    const socket = await this.#sockets.get(host)
    socket?.send(bytes, port, address, () => {})
  }
}

/** Sends a train; the part of it, 0 to 1, that did not come back. Undefined where the other node answers none. */
export async function measureLoss(link: FrameStream, host: string): Promise<number | undefined> {
  const told = (await link.call('echo', null).catch(() => undefined)) as
    | { port: number; id: string; key: string }
    | undefined
  const id = Buffer.from(String(told?.id), 'base64')
  const key = Buffer.from(String(told?.key), 'base64')
  if (!told || !Number.isInteger(told.port) || told.port < 1 || told.port > 65535 || id.length !== 8)
    return undefined
  const seen = new Set<number>()
  let complete = (): void => {}
  const all = new Promise<void>(resolve => {
    complete = resolve
  })
  const socket = await openSocket(isIP(host) === 6 ? '::' : '0.0.0.0', (bytes: Buffer) => {
    if (bytes.length !== packetBytes || !bytes.subarray(0, 8).equals(id) || !isTagged(bytes, key)) return
    const number = bytes.readUInt32BE(8)
    if (number < trainPackets) seen.add(number)
    if (seen.size === trainPackets) complete()
  })
  try {
    for (let number = 0; number < trainPackets; number++) {
      socket.send(packetOf(id, key, number), told.port, host, () => {})
      await pause(spacingMs)
    }
    await Promise.race([all, pause(lingerMs, undefined, { ref: false })])
    // None at all: a firewall that lets no UDP through, which says nothing about the link.
    return seen.size === 0 ? undefined : 1 - seen.size / trainPackets
  } finally {
    socket.close()
  }
}

function packetOf(id: Buffer, key: Buffer, number: number): Buffer {
  const bytes = Buffer.alloc(packetBytes)
  id.copy(bytes)
  bytes.writeUInt32BE(number, 8)
  tagOf(bytes, key).copy(bytes, packetBytes - tagBytes)
  return bytes
}

const tagOf = (bytes: Buffer, key: Buffer): Buffer =>
  createHmac('sha256', key)
    .update(bytes.subarray(0, packetBytes - tagBytes))
    .digest()
    .subarray(0, tagBytes)

const isTagged = (bytes: Buffer, key: Buffer): boolean =>
  timingSafeEqual(tagOf(bytes, key), bytes.subarray(packetBytes - tagBytes))

async function openSocket(host: string, heard: (bytes: Buffer, from: RemoteInfo) => void): Promise<Socket> {
  const socket = createSocket(isIP(host.replace(/%.*$/, '')) === 6 ? 'udp6' : 'udp4')
  socket.on('message', heard)
  socket.bind(0, host)
  await once(socket, 'listening')
  socket.on('error', () => {})
  return socket
}
