// connection.ts: the connecting end of a link.
import { SparkError } from '../../core/errors.js'
import type { NodeCredentials, Peer } from '../trust/credentials.js'
import { expectWelcome } from './admission.js'
import { FrameStream } from './frame-stream.js'
import { type Greeting, greetListener, newSession } from './hello.js'
import type { LinkLimits } from './options.js'
import { type Address, formatAddress, type Pipe } from './pipe.js'
import type { DialTarget, PipeMaker, TransportName } from './transport.js'

type Target = Omit<DialTarget, 'credentials' | 'signal'>

const rekeyRetryMs = 60_000

/** The connecting end of a link; makes the next connection when the keys are old. */
export class Connection {
  readonly #maker: PipeMaker
  #target: Target
  readonly #credentials: () => NodeCredentials
  readonly #limits: LinkLimits
  readonly #signal: AbortSignal | undefined
  readonly #session = newSession()

  constructor(
    maker: PipeMaker,
    target: Target,
    credentials: () => NodeCredentials,
    limits: LinkLimits,
    signal: AbortSignal | undefined,
  ) {
    this.#maker = maker
    this.#target = target
    this.#credentials = credentials
    this.#limits = limits
    this.#signal = signal
  }

  async open(): Promise<FrameStream> {
    const { pipe, greeting } = await this.#dial(false)
    const parts = { pipe, transport: this.#maker.name, limits: this.#limits }
    const stream = new FrameStream({ ...parts, ...greeting })
    this.#target = { ...this.#target, expectedNodeId: stream.peer.nodeId }
    const aborted = (): void => stream.destroy(abortError(this.#signal!))
    this.#signal?.addEventListener('abort', aborted)
    const { rekeyMs, rekeyBytes } = this.#limits
    // Often enough for a link of 1 GB/s.
    const interval = Math.max(20, Math.min(1000, rekeyMs / 4, rekeyBytes / 1e6))
    const timer = setInterval(() => this.#renew(stream), interval)
    timer.unref()
    stream.closed.then(() => {
      clearInterval(timer)
      this.#signal?.removeEventListener('abort', aborted)
    })
    return stream
  }

  #renewing = false
  #renewAt = 0

  async #renew(stream: FrameStream): Promise<void> {
    if (this.#renewing || performance.now() < this.#renewAt || !stream.needsNewKeys()) return
    this.#renewing = true
    try {
      const { pipe, greeting } = await this.#dial(true)
      await stream.moveTo(pipe, greeting.peer)
    } catch {
      this.#renewAt = performance.now() + rekeyRetryMs
    } finally {
      this.#renewing = false
    }
  }

  async #dial(resumes: boolean): Promise<{ pipe: Pipe; greeting: Greeting }> {
    const { address, expectedNodeId, policy } = this.#target
    const credentials = this.#credentials()
    const timeout = AbortSignal.timeout(this.#limits.handshakeMs)
    const signal = this.#signal ? AbortSignal.any([this.#signal, timeout]) : timeout
    let pipe: Pipe | undefined
    try {
      signal.throwIfAborted()
      pipe = await this.#maker.dial({ ...this.#target, credentials, signal })
      pipe.duplex.on('error', () => {})
      const admit = (peer: Peer): void => expectWelcome(peer, credentials, policy, expectedNodeId)
      const parts = { pipe, credentials, limits: this.#limits, signal, admit }
      return { pipe, greeting: await greetListener(parts, this.#session, resumes) }
    } catch (error) {
      pipe?.duplex.destroy()
      throw dialError(
        this.#maker.name,
        address,
        signal.aborted && !this.#signal?.aborted,
        this.#signal,
        error,
      )
    }
  }
}

/** What an abort says. */
const abortError = (signal: AbortSignal): Error =>
  signal.reason instanceof Error ? signal.reason : new SparkError('ERR_IO', 'the link was aborted')

function dialError(
  name: TransportName,
  address: Address,
  late: boolean,
  aborting: AbortSignal | undefined,
  error: unknown,
): unknown {
  if (aborting?.aborted) return abortError(aborting)
  if (error instanceof SparkError) return error
  const { message, code } = error as NodeJS.ErrnoException
  const reason = late ? 'no answer in time' : message || code
  return new SparkError('ERR_IO', `no ${name} connection to ${formatAddress(address)}: ${reason}`, {
    cause: error,
  })
}
