// Long work in pieces: the event loop turns in between, and an aborted signal ends it.
import t from 'tap'
import { atOnce, mapPaced, type Paced, Pacer } from '#lib/core/paced.js'

const reason = new Error('enough')

t.test('the event loop turns', async t => {
  let turned = false
  setImmediate(() => {
    turned = true
  })
  const waiting = function* (): Paced<string> {
    while (!turned) yield
    return 'turned'
  }
  t.equal(await new Pacer().do(waiting()), 'turned')
  t.same(atOnce(mapPaced([1, 2], (item, i) => item + i)), [1, 3])
})

t.test('a signal ends work, which lets go of what it holds', async t => {
  const controller = new AbortController()
  let freed = false
  const endless = function* (): Paced<void> {
    try {
      for (;;) yield
    } finally {
      freed = true
    }
  }
  setImmediate(() => controller.abort(reason))
  await t.rejects(new Pacer(controller.signal).do(endless()), reason)
  t.ok(freed)
  t.throws(() => new Pacer(controller.signal), reason)
})

t.test('a pause hears a signal', async t => {
  const controller = new AbortController()
  const pacer = new Pacer(controller.signal)
  await pacer.pause()
  controller.abort(reason)
  await t.rejects(pacer.pause(), reason)
})

t.test('errors of the work come through', async t => {
  const failing = function* (): Paced<void> {
    yield
    throw reason
  }
  await t.rejects(new Pacer().do(failing()), reason)
})
