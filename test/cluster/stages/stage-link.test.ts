// Questions between two nodes: more than are open at once, and what no node of ours sends.
import { Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { LinkChannels } from '#lib/cluster/links/channels.js'
import type { FrameStream } from '#lib/cluster/links/frame-stream.js'
import { encodeMessage, type Message } from '#lib/cluster/stages/messages.js'
import { type Answerer, StageLink, stageChannel, stageFrames } from '#lib/cluster/stages/stage-link.js'
import { lab } from '../../fixtures/cluster/lab.js'
import { linkPair } from '../../fixtures/cluster/link-pair.js'

const [a, b] = await lab(t, 2)

/** An end of a link whose other end is in the hands of the test. */
async function half(
  t: Test,
  answer: Answerer,
): Promise<{ stages: StageLink; link: FrameStream; far: FrameStream }> {
  const [far, link] = await linkPair(t, a!, b!)
  return { stages: open(link, answer), link, far }
}

const open = (link: FrameStream, answer: Answerer): StageLink =>
  new StageLink(new LinkChannels(link).open(stageChannel), answer)

const message = (words: Message['words'], tensors = {}): Message => ({ words, tensors })
const never: Answerer = () => new Promise(() => {})
const firstFrame = (words: object, tensors = {}): Uint8Array =>
  [...encodeMessage(message(words as Message['words'], tensors))][0]!
/** The first of two frames. */
const unfinished = (): Uint8Array => firstFrame({}, { x: Tensor.zeros([300_000]) })

t.test('more questions than are open at once wait for their turn', async t => {
  const [here, there] = await linkPair(t, a!, b!)
  let [running, most] = [0, 0]
  open(there, async ({ words }) => {
    most = Math.max(most, ++running)
    await new Promise(resolve => setTimeout(resolve, 5))
    running--
    return message({ n: words.n })
  })
  const stages = open(here, never)
  const count = 600
  const stop = new AbortController()
  const asked = Array.from({ length: count }, (_, n) => stages.ask(message({ n })))
  const unwanted = t.rejects(stages.ask(message({}), stop.signal), /enough/)
  stop.abort(new Error('enough'))
  await unwanted
  const answers = await Promise.all(asked)
  t.same(
    answers.map(({ words }) => words.n),
    Array.from({ length: count }, (_, n) => n),
  )
  t.ok(most > 1 && most <= 256, `${most} at once`)
})

t.test('the end of a link ends those that wait as well', async t => {
  const { stages, link } = await half(t, never)
  const asked = Array.from({ length: 300 }, () => stages.ask(message({})).catch(({ code }) => code))
  await link.close()
  t.same(new Set(await Promise.all(asked)), new Set(['ERR_IO']))
})

t.test('what no node sends ends the link', async t => {
  const { ask, reply } = stageFrames
  const head = Buffer.from(JSON.stringify({ words: {}, tensors: [['x', { toString: 1 }, [1]]] }))
  const length = Buffer.alloc(4)
  length.writeUInt32LE(head.length)
  const cases: [string, [type: number, id: number, payload: Uint8Array][], RegExp][] = [
    ['a type that is none', [[ask, 1, Buffer.concat([length, head])]], /without name, type or shape/],
    [
      'two unfinished questions',
      [
        [ask, 1, unfinished()],
        [ask, 2, unfinished()],
      ],
      /begins within message 1/,
    ],
    [
      'two unfinished replies',
      [
        [reply, 1, unfinished()],
        [reply, 2, unfinished()],
      ],
      /begins within/,
    ],
    [
      'a question twice',
      [
        [ask, 1, firstFrame({})],
        [ask, 1, firstFrame({})],
      ],
      /asks question 1 twice/,
    ],
    [
      'many questions',
      Array.from({ length: 1025 }, (_, id) => [ask, id, firstFrame({})]),
      /over 1024 questions/,
    ],
  ]
  for (const [name, frames, reason] of cases) {
    const { link, far } = await half(t, never)
    for (const [type, id, payload] of frames) far.send({ type, id, payload }).catch(() => {})
    t.match((await link.closed).error?.message, reason, name)
  }
})

t.test('errors that cannot be read', async t => {
  const { stages, far } = await half(t, never)
  for (const [i, error] of [null, 7, { code: 7 }, { code: 'ERR_IO', message: { toString: 1 } }].entries()) {
    const asked = t.rejects(stages.ask(message({})), { code: 'ERR_IO', message: /does not say why/ })
    await far.send({ type: stageFrames.reply, id: i + 1, payload: firstFrame({ error }) })
    await asked
  }
})
