// messages.ts: splits a stream into framed Cap'n Proto messages: u32 number of segments - 1, u32 words of each segment, padded
// to 8 bytes; the segments. What is damaged is left out and reported, and the next message searched for.
import { Message } from 'capnp-es'
import { Gap, Inflow, type Output } from './compressed.js'
import type { StreamDamage } from './damage.js'
import { checkedRoot } from './objects.js'
import type { StructView } from './views.js'

/** A message whose pointers were checked. */
export interface CheckedMessage {
  readonly root: StructView
  /** Position in the decompressed log. */
  readonly offset: number
}

const maxSegments = 512
/** The traversal limit of other implementations. */
const maxBytes = 1 << 26
/** Root pointer of an Event: it follows, and has 2 words of data and 1 pointer, since the first version. */
const rootWord = Buffer.from('0000000002000100', 'hex')
/** Bytes of messages that turn out to be none, in a search: beyond it the rest of a log is not searched. */
const maxEffort = 1 << 28

/** The header of a message. */
interface Frame {
  /** Bytes of the message with its header. */
  readonly bytes: number
}

/**
 * The messages of a stream.
 * @param report - is told about what is left out
 */
export async function* readMessages(
  source: Output,
  report: (damage: StreamDamage) => void,
): AsyncGenerator<CheckedMessage, void, undefined> {
  const reader = new MessageReader(source, report)
  try {
    for (;;) {
      const message = await reader.next()
      if (message === undefined) return
      if (message) yield message
    }
  } finally {
    await source.return()
  }
}

/** What is wrong with a message that is not all there. */
const cutOff = 'the log ends in it'

class MessageReader {
  readonly #source: Output
  readonly #report: (damage: StreamDamage) => void
  #input: Inflow
  /** The gap that the input ends at, once it has ended. */
  #gap: Gap | undefined
  #effort = 0

  constructor(source: Output, report: (damage: StreamDamage) => void) {
    this.#source = source
    this.#report = report
    this.#input = new Inflow(this.#pieces())
  }

  /** Pieces up to the next gap. */
  async *#pieces(): AsyncGenerator<Uint8Array, void, undefined> {
    this.#gap = undefined
    for (;;) {
      const { done, value } = await this.#source.next()
      if (done) return
      if (value instanceof Gap) {
        this.#gap = value
        return
      }
      yield value
    }
  }

  /** The next message; null when something was left out instead, undefined at the end. */
  async next(): Promise<CheckedMessage | null | undefined> {
    const input = this.#input
    if (!(await input.has(1))) return this.#gap ? this.#resume(this.#gap, 0) : undefined
    const frame = await this.#frame(0)
    if (typeof frame === 'string') return this.#leaveOut(frame)
    if (!(await input.has(frame.bytes))) return this.#leaveOut(cutOff)
    const message = this.#parse(frame)
    if (typeof message !== 'string') {
      input.drop(frame.bytes)
      return message
    }
    const isLast = !(await input.has(frame.bytes + 1))
    if (!isLast && typeof (await this.#frame(frame.bytes)) === 'string') return this.#leaveOut(message)
    this.#report({ kind: 'message', offset: input.offset, bytes: frame.bytes, reason: message })
    input.drop(frame.bytes)
    return null
  }

  /** The frame at a position of the input, or what is wrong with it. */
  async #frame(at: number): Promise<Frame | string> {
    const input = this.#input
    if (!(await input.has(at + 16))) return cutOff
    const segments = input.bytes.readUInt32LE(at) + 1
    if (segments > maxSegments) return `it has ${segments} segments; ${maxSegments} are accepted`
    const header = 8 * Math.ceil((4 + 4 * segments) / 8)
    if (!(await input.has(at + header + 8))) return cutOff
    let bytes = header
    for (let i = 0; i < segments; i++) bytes += 8 * input.bytes.readUInt32LE(at + 4 + 4 * i)
    if (bytes > maxBytes) return `it has ${bytes} bytes; ${maxBytes} are accepted`
    const root = input.bytes.subarray(at + header, at + header + 8)
    if (bytes === header || (segments === 1 && !root.equals(rootWord))) return 'it is no event'
    return { bytes }
  }

  /** The message at the start of the input, or what is wrong with it. */
  #parse({ bytes }: Frame): CheckedMessage | string {
    const { offset } = this.#input
    try {
      const message = new Message(this.#input.bytes.subarray(0, bytes), false)
      return { root: checkedRoot(message, bytes / 8), offset }
    } catch (error) {
      return (error as Error).message
    }
  }

  /** Drops everything before the next message. */
  async #leaveOut(reason: string): Promise<null> {
    const input = this.#input
    const { offset } = input
    const isFound = await this.#find(1)
    const bytes = input.offset - offset
    if (!isFound && this.#gap) return this.#resume(this.#gap, bytes)
    this.#report({ kind: reason === cutOff && !isFound ? 'truncated' : 'message', offset, bytes, reason })
    return null
  }

  /** Goes on behind a gap, with the next message that is whole. @param lost - bytes before the gap that were left out */
  async #resume({ reason, isTruncated }: Gap, lost: number): Promise<null> {
    const { offset } = this.#input
    this.#input = new Inflow(this.#pieces())
    this.#input.offset = offset
    await this.#find(0)
    const kind = isTruncated ? 'truncated' : 'compression'
    this.#report({ kind, offset: offset - lost, bytes: this.#input.offset - offset + lost, reason })
    return null
  }

  /** Drops bytes up to the next message from a position on, or all. @returns whether there is one */
  async #find(from: number): Promise<boolean> {
    const input = this.#input
    for (let start = from; ; ) {
      const root = this.#effort > maxEffort ? -1 : input.bytes.indexOf(rootWord, start + 8)
      if (root >= 0) {
        input.drop(root - 8)
        if (await this.#isMessage()) return true
        start = 1
        continue
      }
      const done = Math.max(0, input.length - 15)
      if (done > start) {
        input.drop(done)
        start = 0
      }
      if (!(await input.has(input.length + 1))) break
    }
    input.drop(input.length)
    return false
  }

  async #isMessage(): Promise<boolean> {
    const frame = await this.#frame(0)
    if (typeof frame === 'string' || !(await this.#input.has(frame.bytes))) return false
    this.#effort += frame.bytes
    return typeof this.#parse(frame) !== 'string'
  }
}
