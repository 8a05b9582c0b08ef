// transfer-rate.ts: the rate of a link from the frames that it carries anyway, so that an idle link stays quiet.

const weight = 0.2
/** Below this a socket's own memory takes all, and the rate is that of a copy. */
const minBytes = 16 << 20
const minMs = 50
const maxGapMs = 50

/** A moving average over busy times. */
export class TransferRate {
  #average: number | undefined
  #busy = { bytes: 0, ms: 0, until: Number.NEGATIVE_INFINITY }

  /** Bytes per second; undefined before enough was sent at once. */
  get value(): number | undefined {
    return this.#average
  }

  /** A frame was sent. @param now - when it ended, in milliseconds */
  add(bytes: number, ms: number, now: number): void {
    const busy = this.#busy
    if (now - ms - busy.until > maxGapMs) this.#busy = { bytes, ms, until: now }
    else this.#busy = { bytes: busy.bytes + bytes, ms: busy.ms + (now - busy.until), until: now }
    const { bytes: sum, ms: time } = this.#busy
    if (sum < minBytes || time < minMs) return
    const rate = (sum * 1000) / time
    this.#average = this.#average === undefined ? rate : this.#average + weight * (rate - this.#average)
    this.#busy = { bytes: 0, ms: 0, until: now }
  }
}
