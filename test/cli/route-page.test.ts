// inspect-route --html as a browser shows it.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { Browser, noBrowser } from '../fixtures/browser.js'
import { car, filmSegment, hostile, hostileName, writeSegment } from '../fixtures/route/film-segment.js'
import { noFfmpeg } from '../fixtures/video/encode.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const root = t.testdir({})

t.test('the page of a drive', { skip: noBrowser || noFfmpeg }, async t => {
  const pages = ['filmed', 'hostile', 'log'].map(name => path.join(root, `browser-${name}.html`))
  const folders = [
    filmSegment(root, '0000000c--0123456789--0'),
    filmSegment(root, `${hostileName}2`, hostile),
    writeSegment(root, '0000000d--0123456789--0', ...car),
  ]
  for (const [i, folder] of folders.entries()) {
    const every = i === 1 ? '0.05' : '0.5'
    const args = ['inspect-route', folder, '--html', pages[i]!, '--every', every]
    const { status, stderr } = spawnSync(process.execPath, ['--no-warnings', main, ...args], {
      encoding: 'utf8',
    })
    t.equal(status, 0, stderr)
  }
  const browser = new Browser()
  t.teardown(() => browser.close())
  await browser.prefer('light')
  await browser.open(pages[0]!)
  const text = (id: string): Promise<string> =>
    browser.evaluate(`document.getElementById('${id}').textContent`)
  const count = (selector: string): Promise<number> =>
    browser.evaluate(`document.querySelectorAll('${selector}').length`)

  await t.test('shows frames, plans and plots', async t => {
    t.equal(await count('.plot canvas'), 2)
    t.equal(await count('#overlay .plan'), 1)
    t.equal(await count('#overlay .lane'), 2)
    t.equal(await count('#events tbody tr'), 5)
    t.match(await text('caption'), /frame 1 of 4, 0\.35 s; model of this frame/)
    await browser.evaluate("document.getElementById('frame').decode()")
    t.equal(await browser.evaluate("document.getElementById('frame').naturalWidth"), 526)
  })

  await t.test('is used by keys', async t => {
    await browser.press('ArrowRight')
    t.match(await text('now'), /^0\.85 s · 14\.3 m\/s, 51 km\/h · -3\.0° · driver turns the wheel/)
    t.match(await text('caption'), /frame 2 of 4/)
    t.equal(await count('#overlay .lead'), 0)
    await browser.press('End')
    t.match(await text('caption'), /frame 4 of 4/)
    await browser.press('ArrowLeft')
    t.match(await text('now'), /^1\.35 s .* openpilot drives/)
    await browser.press('Home')
    t.match(await text('now'), /^0\.00 s/)
  })

  await t.test('follows the pointer and the slider', async t => {
    await browser.evaluate(`(() => {
      const over = document.querySelector('#angle .u-over')
      const { left, top, width } = over.getBoundingClientRect()
      const clientX = left + width * 0.7
      over.dispatchEvent(new PointerEvent('pointermove', { clientX, clientY: top + 5, bubbles: true }))
    })()`)
    t.match(await text('caption'), /frame 3 of 4/)
    const marks = await browser.evaluate<string[]>(
      "[...document.querySelectorAll('.line')].map(line => line.style.left)",
    )
    t.equal(marks.length, 2)
    t.equal(marks[0], marks[1], 'one time in both plots')
    await browser.evaluate(`(() => {
      const slider = document.getElementById('time')
      slider.value = '0.9'
      slider.dispatchEvent(new Event('input'))
    })()`)
    t.match(await text('caption'), /frame 2 of 4/)
  })

  await t.test('plays', async t => {
    await browser.evaluate("document.getElementById('rate').value = '10'")
    await browser.press('Home')
    await browser.press(' ')
    t.equal(await text('play'), 'Pause')
    const stopped = `new Promise(resolve => {
      const look = () => document.getElementById('play').textContent === 'Play' ? resolve(true) : setTimeout(look, 20)
      look()
    })`
    t.ok(await browser.evaluate(stopped))
    t.match(await text('caption'), /frame 4 of 4/)
  })

  await t.test('is light or dark', async t => {
    const look = 'getComputedStyle(document.body).backgroundColor'
    const light = await browser.evaluate(look)
    await browser.evaluate("document.getElementById('theme').click()")
    t.not(await browser.evaluate(look), light)
    t.equal(await count('.plot canvas'), 2)
    t.ok((await browser.screenshot()).length > 20_000)
  })

  await t.test('opens hostile logs, and logs without video', async t => {
    await browser.open(pages[1]!)
    t.match(await text('caption'), /frame 1 of 5/)
    await browser.press('ArrowRight')
    t.match(await text('caption'), /frame 2 of 5/)
    t.match(await browser.evaluate('document.title'), '<img src=x')
    await browser.open(pages[2]!)
    t.match(await browser.evaluate("document.querySelector('.note').textContent"), 'No frames')
    await browser.press('ArrowRight')
    t.match(await text('now'), /^1\.00 s · 15\.0 m\/s/)
    t.equal(await count('.plot canvas'), 2)
  })
  t.same(browser.complaints, [])
})
