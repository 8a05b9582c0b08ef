// StopDetector: a stop text ends the text, and no part of it is shown, however the pieces are cut.
import t from 'tap'
import { StopDetector } from '#lib/text/stop-detector.js'

/** The shown text and the stop text of a text that comes in pieces. */
function run(stops: string[], pieces: readonly string[]): { text: string; stop?: string } {
  const detector = new StopDetector(stops)
  const shown = [...pieces.map(piece => detector.push(piece)), detector.flush()]
  const stop = shown.find(part => part.stop !== undefined)?.stop
  return { text: shown.map(part => part.text).join(''), ...(stop !== undefined && { stop }) }
}

/** All ways to cut a text in two, and into characters. */
const cuts = (text: string): string[][] => [
  ...Array.from({ length: text.length + 1 }, (_, i) => [text.slice(0, i), text.slice(i)]),
  [...text],
]

t.test('a stop text is found wherever the pieces are cut', async t => {
  for (const [stops, text, wanted] of [
    [['\nUser:'], 'Hello\nUser: Hi', { text: 'Hello', stop: '\nUser:' }],
    [['END'], 'ENENDEND', { text: 'EN', stop: 'END' }],
    [['aab'], 'aaaab', { text: 'aa', stop: 'aab' }],
    [['x', 'yz'], 'ayz', { text: 'a', stop: 'yz' }],
    [['never'], 'nevneve', { text: 'nevneve' }],
    [['😀'], 'a😀b', { text: 'a', stop: '😀' }],
    [['b', 'abc'], 'xabc', { text: 'x', stop: 'abc' }],
    [['b', 'abc'], 'xabd', { text: 'xa', stop: 'b' }],
    [['b', 'abc'], 'xab', { text: 'xa', stop: 'b' }],
    [[], 'all', { text: 'all' }],
    [['end'], '', { text: '' }],
  ] as const)
    for (const pieces of cuts(text)) t.same(run([...stops], pieces), wanted, pieces.join('|'))
})

t.test('what is shown when', async t => {
  const detector = new StopDetector(['\n\nQ:', 'stop'])
  t.same(detector.push('one\n'), { text: 'one' }, 'a line break may begin a stop text')
  t.same(detector.push('two'), { text: '\ntwo' })
  t.same(detector.push('s'), { text: '' })
  t.same(detector.push('o'), { text: 'so' })
  t.same(detector.push(' st'), { text: ' ' })
  t.notOk(detector.isStopped)
  t.same(detector.push('opped'), { text: '', stop: 'stop' })
  t.ok(detector.isStopped)
  t.same(detector.push('more'), { text: '' })
  t.same(detector.flush(), { text: '' })
})

t.test('hostile text', async t => {
  const detector = new StopDetector([`${'a'.repeat(999)}b`])
  let length = 0
  for (let i = 0; i < 20; i++) length += detector.push('a'.repeat(1000)).text.length
  t.equal(length, 20_000 - 999, 'no more is held back than a stop text can need')
  t.equal(detector.flush().text.length, 999)
  t.same(run(['\ud83d'], ['\ud83d']), { text: '', stop: '\ud83d' })
})

t.test('what is refused', async t => {
  for (const stops of ['end', [''], [3], Array(257).fill('x'), ['x'.repeat(1001)], null])
    t.throws(() => new StopDetector(stops as string[]), { code: 'ERR_ARGUMENT', message: /stops/ })
  t.throws(() => new StopDetector([]).push(3 as never), { code: 'ERR_ARGUMENT', message: /piece/ })
})
