// simulate --html as a browser shows it.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { Browser, noBrowser } from '../fixtures/browser.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const root = t.testdir({})
const hostile = `</script><img src=x onerror="document.title='broken'">\u202e&amp;`

const ego = { speed: 20 }
const scenarios = [
  { name: 'free', duration: 4, ego },
  { name: hostile, duration: 6, ego: { speed: 30 }, lead: { gap: 20, speed: 0 } },
  { name: hostile, duration: 1, ego: { speed: -1 } },
  {
    name: 'bend',
    duration: 8,
    ego,
    road: {
      curvature: [
        [10, 0],
        [40, 0.008],
      ],
    },
  },
  ...Array.from({ length: 30 }, (_, i) => {
    return { name: `behind ${i}`, duration: 2, ego, lead: { gap: 20 + i, speed: 18 } }
  }),
]

function page(name: string, ...args: readonly string[]): string {
  const file = path.join(root, name)
  const input = JSON.stringify(scenarios)
  const all = ['--no-warnings', main, 'simulate', '--device', 'cpu', ...args, '--html', file]
  const { status, stderr } = spawnSync(process.execPath, all, { encoding: 'utf8', input })
  t.equal(status, args.includes('-') ? 1 : 0, stderr)
  return file
}

t.test('what a page is given', async t => {
  const html = readFileSync(page('data.html', '--scenarios', '-', '--compare', 'acc'), 'utf8')
  t.notMatch(html, '<img')
  const text = /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(html)![1]!
  const data = JSON.parse(text)
  t.equal(data.rows.length, 33)
  t.match(data.rows[0], { index: 1, ended: ['collision', 'collision'] })
  t.match(data.rows[1], { index: 3, name: 'bend', ended: ['finished', 'off road'] })
  t.match(data.rows[1].name, 'bend')
  t.equal(data.chosen.length, 24)
  const [good, bad] = data.chosen[1].runs
  t.equal(good.x.length, 160)
  t.ok(bad.x.length < 160 && Math.abs(bad.lateralError.at(-1)) > 5)
  t.same(new Set(good.gap), new Set([null]), 'no car is seen')
  // Where the car should be is the middle of the lane: on a circle of 125 m, from 40 m on.
  const [x, y] = good.target.at(-1)
  const [carX, carY] = [good.x.at(-1), good.y.at(-1)]
  const distance = Math.hypot(x - carX, y - carY)
  t.ok(Math.abs(distance - Math.abs(good.lateralError.at(-1))) < 0.02, `${distance}`)
  const { sorted } = data.metrics.find(({ name }: { name: string }) => name === 'gap')
  t.same(
    sorted[0],
    [...sorted[0]].sort((a, b) => a - b),
  )
})

t.test('the page of a simulation', { skip: noBrowser }, async t => {
  const both = page('both.html', '--scenarios', '-', '--compare', 'acc')
  const one = page('one.html', '--generate', '1', '--duration', '0.05')
  const browser = new Browser()
  t.teardown(() => browser.close())
  await browser.prefer('light')
  await browser.open(both)
  const text = (selector: string): Promise<string> =>
    browser.evaluate(`document.querySelector('${selector}').textContent`)
  const count = (selector: string): Promise<number> =>
    browser.evaluate(`document.querySelectorAll('${selector}').length`)
  const names = (): Promise<string[]> =>
    browser.evaluate("[...document.querySelectorAll('#scenarios td.name')].map(cell => cell.textContent)")
  const choose = (id: string, value: string): Promise<void> =>
    browser.evaluate(`(() => {
      const select = document.getElementById('${id}')
      select.value = '${value}'
      select.dispatchEvent(new Event('change'))
    })()`)
  const press = (selector: string): Promise<void> =>
    browser.evaluate(`document.querySelector('${selector}').click()`)

  await t.test('shows metrics, a comparison and what is wrong', async t => {
    t.match(await browser.evaluate('document.title'), 'Simulation: idm + laneKeeping and acc')
    t.equal(await count('#sorted canvas'), 9)
    t.equal(await count('#comparison tbody tr'), 9)
    t.match(await text('#wrong'), 'must be >= 0, got -1')
    t.match(await text('#wrong'), String.raw`\u{202e}`)
    t.equal(await count('img'), 0)
  })

  await t.test('shows scenarios step by step', async t => {
    t.equal(await count('#scenario option'), 24)
    t.match(await text('#ended'), /^A: collision after [\d.]+ s, B: collision after/)
    t.equal(await count('#steps canvas'), 4)
    t.match(await text('#path'), 'collision ✕')
    await press('#next')
    t.match(await text('#ended'), /^A: finished after 8 s, B: off road after/)
    t.equal(await count('#path polyline'), 3)
    t.equal(await count('#steps canvas'), 4, 'those before are gone')
    await browser.evaluate(`(() => {
      const over = document.querySelector('#steps .u-over')
      const { left, top, width } = over.getBoundingClientRect()
      over.dispatchEvent(new MouseEvent('mouseenter', { clientX: left + 5, clientY: top + 5 }))
      over.dispatchEvent(new MouseEvent('mousemove', { clientX: left + width / 4, clientY: top + 5 }))
      return new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)))
    })()`)
    t.match(await text('#now'), /^(1\.9|2)\d* s · speed 20 \| 20 · gap – \| – · acceleration /)
    t.equal(
      await browser.evaluate("document.querySelector('#path circle.a').getAttribute('visibility')"),
      'visible',
    )
  })

  await t.test('sorts and filters scenarios', async t => {
    t.equal(await count('#scenarios tbody tr'), 33)
    await press('#scenarios th:nth-child(1) button')
    t.equal((await names())[0], 'free')
    await press('#scenarios th:nth-child(1) button')
    t.equal((await names())[0], 'behind 29')
    t.equal(
      await browser.evaluate("document.querySelector('#scenarios th').getAttribute('aria-sort')"),
      'descending',
    )
    await choose('filter', 'off road')
    t.same(await names(), ['bend'])
    t.equal(await text('#count'), '1 scenario')
    const cost = (): Promise<string> => text('#scenarios tbody td:last-child')
    const a = Number(await cost())
    await choose('shown', '1')
    const b = Number(await cost())
    await choose('shown', 'difference')
    t.ok(Math.abs(Number(await cost()) - (b - a)) < 0.1, `${a} ${b}`)
    await press('#previous')
    await press('#scenarios button.open')
    t.match(await text('#ended'), /off road/)
  })

  await t.test('fits a narrow window, is light or dark', async t => {
    await browser.evaluate(`(() => {
      document.body.style.width = '400px'
      dispatchEvent(new Event('resize'))
      return new Promise(resolve => setTimeout(resolve, 300))
    })()`)
    t.ok((await browser.evaluate<number>("document.querySelector('#sorted').scrollWidth")) <= 400)
    t.ok((await browser.evaluate<number>("document.querySelector('main').scrollWidth")) <= 400)
    const look = 'getComputedStyle(document.body).backgroundColor'
    const light = await browser.evaluate(look)
    await press('#theme')
    t.not(await browser.evaluate(look), light)
    t.equal(await count('#steps canvas'), 4)
    await browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    t.equal(await browser.evaluate(look), light, 'paper is light')
    await browser.evaluate("dispatchEvent(new Event('afterprint'))")
    t.not(await browser.evaluate(look), light)
  })

  await t.test('shows a single step of a single scenario', async t => {
    await browser.open(one)
    t.equal(await count('#scenarios tbody tr'), 1)
    t.equal(await count('#steps canvas'), 4)
    t.match(await text('#ended'), 'finished after 0.05 s')
  })
  t.same(browser.complaints, [])
})
