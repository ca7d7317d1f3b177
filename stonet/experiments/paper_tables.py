"""What the paper reports: its tables as facts, to stand beside ours.

Source: the tables of the STONet paper, numbered as there. Errors are in its units: Wave 1e-4,
Solar MW, Temperature K, Humidity 10 %, Cloud 1e-1, Wind m/s. Misprints stay (its Table 6 has two
labels swapped, put right here).
"""

from __future__ import annotations

UNITS = {
    "Wave": "1e-4",
    "Solar": "MW",
    "Temperature": "K",
    "Humidity": "10 %",
    "Cloud": "1e-1",
    "Wind": "m/s",
}
OURS = "stonet"

# Table 3: data set, model, MAE, std, RMSE, std
_COMPARISON = """
Wave,TGCN,3.7619,0.0144,5.8999,0.0485
Wave,STGCN,4.1202,0.1800,6.4805,0.4165
Wave,MSTGCN,6.0639,0.2664,7.8891,0.5628
Wave,ASTGCN,5.3150,0.2012,7.1699,0.2045
Wave,GCGRU,3.5617,0.4817,5.6927,0.4181
Wave,DCRNN,3.7338,0.1167,5.8157,0.0859
Wave,AGCRN,4.2048,0.1161,6.1559,0.0776
Wave,STONet,3.1959,0.0722,5.2201,0.0743
Solar,TGCN,2.0036,0.0423,4.6218,0.3820
Solar,STGCN,1.4048,0.0184,4.1451,0.0249
Solar,MSTGCN,1.9224,0.0251,4.0406,0.0471
Solar,ASTGCN,1.9834,0.0054,4.1312,0.0095
Solar,GCGRU,1.0661,0.0867,2.6303,0.1197
Solar,DCRNN,1.1031,0.1140,2.7474,0.2229
Solar,AGCRN,1.1845,0.0902,2.6823,0.1261
Solar,STONet,0.8699,0.0399,2.1533,0.0563
Temperature,TGCN,3.8638,0.0970,5.8554,0.1432
Temperature,STGCN,4.3525,1.0442,6.8600,1.1233
Temperature,MSTGCN,1.2199,0.0058,1.9203,0.0093
Temperature,ASTGCN,1.4896,0.0130,2.4622,0.0023
Temperature,GCGRU,1.3256,0.1499,2.1721,0.1945
Temperature,DCRNN,1.3232,0.0864,2.1874,0.1227
Temperature,AGCRN,1.2551,0.0080,1.9314,0.0219
Temperature,CLCRN,1.1688,0.0457,1.8825,0.1509
Temperature,STONet,0.8972,0.0230,1.4963,0.0422
Humidity,TGCN,1.4700,0.0295,2.1066,0.0551
Humidity,STGCN,0.7975,0.2378,1.1109,0.2913
Humidity,MSTGCN,0.6093,0.0012,0.8684,0.0019
Humidity,ASTGCN,0.7288,0.0229,1.0471,0.0402
Humidity,GCGRU,0.5007,0.0002,0.7891,0.0006
Humidity,DCRNN,0.5046,0.0011,0.7956,0.0033
Humidity,AGCRN,0.5759,0.1632,0.8549,0.2025
Humidity,CLCRN,0.4531,0.0065,0.7078,0.0146
Humidity,STONet,0.4273,0.0256,0.6584,0.0287
Cloud,TGCN,2.3934,0.0216,3.6512,0.0223
Cloud,STGCN,2.0197,0.0392,2.9542,0.0542
Cloud,MSTGCN,1.8732,0.0010,2.8629,0.0073
Cloud,ASTGCN,1.9936,0.0002,2.9576,0.0007
Cloud,GCGRU,1.5925,0.0023,2.5576,0.0116
Cloud,DCRNN,1.5938,0.0021,2.5412,0.0044
Cloud,AGCRN,1.7501,0.1467,2.7585,0.1694
Cloud,CLCRN,1.4906,0.0037,2.4559,0.0027
Cloud,STONet,1.4933,0.0030,2.4142,0.0016
Wind,TGCN,4.1747,0.0324,5.6730,0.0412
Wind,STGCN,3.6477,0.0000,4.8146,0.0003
Wind,MSTGCN,1.9440,0.0150,2.9111,0.0292
Wind,ASTGCN,2.0889,0.0006,3.1356,0.0012
Wind,GCGRU,1.4116,0.0057,2.2931,0.0047
Wind,DCRNN,1.4321,0.0019,2.3364,0.0055
Wind,AGCRN,2.4194,0.1149,3.4171,0.1127
Wind,CLCRN,1.3260,0.0483,2.1292,0.0733
Wind,STONet,1.2192,0.0064,1.9774,0.0122
"""
# Table 4: data set, MAE at seen points, MAE at unseen ones with a past, Deviation in percent
_INDUCTIVE = """
Wave,3.1959,3.1719,-0.7510
Solar,1.1448,1.1799,+3.0660
Temperature,0.9344,0.9638,+3.1464
Humidity,0.4678,0.4847,+3.6127
Cloud,1.5874,1.6024,+0.9449
Wind,1.3124,1.3330,+1.5696
"""
# Table 5: factor, value, MAE on Solar, MAE on Temperature
_ABLATION = """
levels,1,1.0630,0.8917
levels,2,0.9729,0.8718
levels,3,0.8699,0.8972
alpha,0.0,0.9195,0.8845
alpha,0.5,0.8699,0.8972
alpha,1.0,0.9159,0.9692
"""
# Table 6: data set, minutes of an epoch and MB with the ODE decoder, the same without
_COST = """
Solar,12.62,13641,2.32,16163
Humidity,63.12,22957,10.70,25183
"""


def _rows(text: str) -> list[list[str]]:
    return [line.split(",") for line in text.split()]


def _numbers(words: list[str]) -> tuple[float, ...]:
    return tuple(float(word) for word in words)


COMPARISON = {(row[0], row[1].lower()): _numbers(row[2:]) for row in _rows(_COMPARISON)}
INDUCTIVE = {row[0]: _numbers(row[1:]) for row in _rows(_INDUCTIVE)}
ABLATION = {(row[0], row[1]): _numbers(row[2:]) for row in _rows(_ABLATION)}
COST = {row[0]: _numbers(row[1:]) for row in _rows(_COST)}


def improvement(dataset: str) -> float:
    """In percent, of the MAE, over the second best: recomputed from Table 3."""
    others = [v[0] for (name, model), v in COMPARISON.items() if name == dataset and model != OURS]
    return 100 * (1 - COMPARISON[dataset, OURS][0] / min(others))
