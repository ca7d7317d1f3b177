/* Requests to the server that gave the page, and their errors in words. */

import { seconds } from "./clock.js";

const TOKEN = "stonet-token";

/** What went wrong, in words for the reader. */
export class Trouble extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** Asks for the token of a server that wants one; gives whether one was entered. */
function askToken() {
  const dialog = document.getElementById("token-dialog");
  const input = document.getElementById("token");
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    if (input.value) sessionStorage.setItem(TOKEN, input.value.trim());
    resolve(input.value !== "");
    input.value = "";
  }, { once: true }));
}

let asking = null;

/** The response to a request, or a Trouble. */
async function request(path, body, signal) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET", headers, signal, body: body ? JSON.stringify(body) : undefined,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("The server does not answer. Is `stonet serve` still running?");
  }
  if (response.status === 401) {
    asking ??= askToken().finally(() => { asking = null; });
    if (await asking) return request(path, body, signal);
  }
  if (!response.ok) throw new Trouble(await reason(response), response.status);
  return response;
}

/** Why a request was refused: the server's own words, if it gave some. */
async function reason(response) {
  const said = await response.json().catch(() => ({}));
  const detail = said.error ?? said.message ?? said.detail;
  const words = typeof detail === "string" ? detail
    : Array.isArray(detail) ? detail.map((part) => part.msg ?? String(part)).join("; ")
      : detail?.message;
  if (words) return words;
  if (response.status === 503 || response.status === 429) {
    return "The server is busy. Try again in a moment.";
  }
  return `The server refused the request (${response.status}).`;
}

const json = async (...words) => (await request(...words)).json();
const without = (object) => Object.fromEntries(
  Object.entries(object).filter(([, value]) => value !== undefined && value !== null));

export const getModel = () => json("/v1/model");

export const getStations = (time, signal) =>
  json(`/v1/stations?time=${encodeURIComponent(time)}`, null, signal);

/** Past values of stations: {times: [seconds], stations: [{name, values: {channel: [...]}}]}. */
export async function getSeries(stations, hours, issue, signal) {
  const query = new URLSearchParams({ hours, issue_time: issue });
  stations.forEach((station) => query.append("stations", station));
  const found = await json(`/v1/series?${query}`, null, signal);
  return { ...found, times: found.times.map(seconds) };
}

/** A forecast; `sites` null stands for all stations. */
export async function getForecast(body, signal) {
  const found = await json("/v1/forecast", without(body), signal);
  return { ...found, times: found.times.map(seconds) };
}

/** Grids of one channel: {rows: {values}, columns: {values}, values: [time][row][column]}. */
export const getField = (body, signal) => json("/v1/field", without(body), signal);

export const getCoast = (region) => json(`/v1/coast?region=${region.join(",")}`);

/** A forecast as a file, saved by the browser. */
export async function download(body, format) {
  const response = await request(`/v1/forecast?format=${format}`, without(body));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = `forecast.${format === "csv" ? "csv" : "nc"}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
