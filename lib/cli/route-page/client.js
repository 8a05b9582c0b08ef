// client.js: time, frames, plots and keys of the page of a drive; runs in the browser.
const { uPlot } = globalThis
const element = id => document.getElementById(id)
const data = JSON.parse(element('data').textContent)
const [slider, play, rate, image, overlay] = ['time', 'play', 'rate', 'frame', 'overlay'].map(element)
const theme = matchMedia('(prefers-color-scheme: dark)')
const plotHeight = 132
const last = times => times.at(-1) ?? 0
const end = Math.max(last(data.times), last(data.frames.map(frame => frame.time)))
/** The plots, each with the mark of the time in it. */
let plots = []
let now = 0
let shown

/** Number of times that are not after another. */
function countUntil(times, time) {
  let [low, high] = [0, times.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (times[middle] <= time) low = middle + 1
    else high = middle
  }
  return low
}

const frameTimes = data.frames.map(frame => frame.time)

/** The index of the frame nearest to a time. */
function nearestFrame(time) {
  const after = Math.min(countUntil(frameTimes, time), frameTimes.length - 1)
  const before = Math.max(after - 1, 0)
  return time - frameTimes[before] <= frameTimes[after] - time ? before : after
}

function draw(name, attributes, text) {
  const drawn = document.createElementNS('http://www.w3.org/2000/svg', name)
  for (const [key, value] of Object.entries(attributes)) drawn.setAttribute(key, value)
  if (text !== undefined) drawn.textContent = text
  overlay.append(drawn)
}

/** Shows a frame with what the model saw. */
function showFrame(index) {
  if (index === shown) return
  shown = index
  const frame = data.frames[index]
  image.src = frame.src
  overlay.replaceChildren()
  const { lines = [], leads = [], age } = frame.overlay ?? {}
  for (const { kind, probability, points } of lines) {
    const opacity = Math.max(0.08, probability)
    draw(kind === 'plan' ? 'polygon' : 'polyline', { class: kind, points, opacity })
  }
  for (const { x, y, distance, probability } of leads) {
    draw('polygon', { class: 'lead', points: `${x},${y - 6} ${x - 11},${y + 10} ${x + 11},${y + 10}` })
    draw('text', { x, y: y + 25 }, `${distance.toFixed(0)} m, ${(100 * probability).toFixed(0)} %`)
  }
  const model =
    age === undefined
      ? 'no model of this time'
      : Math.abs(age) > 0.02
        ? `model ${Math.abs(age).toFixed(2)} s ${age > 0 ? 'earlier' : 'later'}`
        : 'model of this frame'
  element('caption').textContent =
    `frame ${index + 1} of ${data.frames.length}, ${frame.time.toFixed(2)} s; ${model}`
}

const isIn = (spans, time) => spans.some(([from, to]) => from <= time && time <= to)

/** What the log says at the time. */
function describe() {
  const at = Math.max(0, countUntil(data.times, now) - 1)
  const [speed, angle] = [data.speed[at], data.angle[at]]
  const unknown = '–'
  const parts = [`${now.toFixed(2)} s`]
  if (data.times.length > 0) {
    parts.push(speed === null ? unknown : `${speed.toFixed(1)} m/s, ${(3.6 * speed).toFixed(0)} km/h`)
    parts.push(angle === null ? unknown : `${angle.toFixed(1)}°`)
  }
  if (isIn(data.engaged, now)) parts.push('openpilot drives')
  if (isIn(data.pressed, now)) parts.push('driver turns the wheel')
  return parts.join(' · ')
}

/** Goes to a time. */
function goTo(time) {
  now = Math.min(end, Math.max(0, time))
  if (!slider) return
  slider.value = String(now)
  slider.setAttribute('aria-valuetext', `${now.toFixed(1)} seconds`)
  element('now').textContent = describe()
  for (const { plot, line } of plots) line.style.left = `${plot.valToPos(now, 'x')}px`
  if (data.frames.length > 0) showFrame(nearestFrame(now))
}

/** Goes to the next or previous frame; where there are none, a second on or back. */
function step(by) {
  if (data.frames.length === 0) return goTo(now + by)
  const index = Math.min(data.frames.length - 1, Math.max(0, nearestFrame(now) + by))
  goTo(data.frames[index].time)
}

/** A colour of the style sheet as canvases take it. */
function colour(name) {
  const probe = document.createElement('span')
  probe.style.color = `var(--${name})`
  document.body.append(probe)
  const { color } = getComputedStyle(probe)
  probe.remove()
  return color
}

/** Colours behind a plot: when openpilot drives, and at the bottom when the driver turns the wheel. */
function drawSpans(plot, colours) {
  const { ctx, bbox } = plot
  const fill = (spans, top, height) => {
    for (const [from, to] of spans) {
      const [x, right] = [from, to].map(time => plot.valToPos(time, 'x', true))
      ctx.fillRect(x, top, Math.max(1, right - x), height)
    }
  }
  ctx.save()
  ctx.fillStyle = colours.engaged
  fill(data.engaged, bbox.top, bbox.height)
  ctx.fillStyle = colours.pressed
  const strip = 6 * devicePixelRatio
  fill(data.pressed, bbox.top + bbox.height - strip, strip)
  ctx.restore()
}

/** A plot; both have an axis on the right, so that times are below each other. */
function makePlot(id, values, stroke, rightLabel) {
  const parent = element(id)
  const names = ['text', 'soft', 'line', 'engaged', 'pressed', 'link', 'mark']
  const colours = Object.fromEntries(names.map(name => [name, colour(name)]))
  const axis = {
    stroke: colours.soft,
    grid: { stroke: colours.line, width: 1 },
    ticks: { stroke: colours.line },
  }
  const size = 56
  const options = {
    width: Math.max(200, parent.clientWidth),
    height: plotHeight,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false, range: () => [0, Math.max(end, 0.1)] } },
    axes: [
      { ...axis, size: 30, values: (_, splits) => splits.map(value => `${value} s`) },
      { ...axis, size },
      {
        ...axis,
        size,
        side: 1,
        scale: 'y',
        grid: { show: false },
        values: (_, splits) => splits.map(rightLabel),
      },
    ],
    series: [{}, { stroke: colours[stroke], width: 1.5, points: { show: values.length < 3 } }],
    hooks: { drawClear: [plot => drawSpans(plot, colours)] },
  }
  const plot = new uPlot(options, [data.times, values], parent)
  const line = document.createElement('div')
  line.className = 'line'
  plot.over.append(line)
  const follow = ({ clientX }) => goTo(plot.posToVal(clientX - plot.over.getBoundingClientRect().left, 'x'))
  plot.over.addEventListener('pointermove', follow)
  plot.over.addEventListener('pointerdown', follow)
  return { plot, line, parent }
}

/** Makes the plots: again when colours change. */
function makePlots() {
  for (const { plot } of plots) plot.destroy()
  if (data.times.length > 0)
    plots = [
      makePlot('speed', data.speed, 'link', speed => (3.6 * speed).toFixed(0)),
      makePlot('angle', data.angle, 'mark', () => ''),
    ]
  goTo(now)
}

let started
function playOn(stamp) {
  if (!started) return
  goTo(now + ((stamp - started) / 1000) * Number(rate.value))
  started = stamp
  if (now >= end) pause()
  else requestAnimationFrame(playOn)
}

function pause() {
  started = undefined
  play.textContent = 'Play'
}

function toggle() {
  if (!play) return
  if (started) return pause()
  if (now >= end) goTo(0)
  started = performance.now()
  play.textContent = 'Pause'
  requestAnimationFrame(playOn)
}

const isDark = () => (document.documentElement.dataset.theme ?? (theme.matches ? 'dark' : 'light')) === 'dark'
function useTheme() {
  element('theme').textContent = isDark() ? 'Light' : 'Dark'
  makePlots()
}

const actions = {
  ArrowLeft: () => step(-1),
  ArrowRight: () => step(1),
  Home: () => goTo(0),
  End: () => goTo(end),
  ' ': toggle,
}

document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return
  if (event.target.matches('select') || !slider) return
  if (event.key === ' ' && event.target.matches('button')) return
  if (!Object.hasOwn(actions, event.key)) return
  actions[event.key]()
  event.preventDefault()
})

if (slider) {
  slider.max = String(end)
  slider.addEventListener('input', () => goTo(Number(slider.value)))
  play.onclick = toggle
}
element('theme').onclick = () => {
  document.documentElement.dataset.theme = isDark() ? 'light' : 'dark'
  useTheme()
}
theme.addEventListener('change', useTheme)
addEventListener('resize', () => {
  for (const { plot, parent } of plots)
    plot.setSize({ width: Math.max(200, parent.clientWidth), height: plotHeight })
  goTo(now)
})
useTheme()
