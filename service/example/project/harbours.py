"""The pretend library's station files. Illustrative constants, not for navigation.

Two of them are as their offices sent them: Fécamp in Latin-1 with decimal commas, Xiamen with full-width colons.
"""

UNDECODABLE = "\ufffd"
"""Stands for the one Latin-1 byte that a UTF-8 reader cannot decode."""

BREST = r"""# Brest, roads. Constants from the 2019 analysis.
id: brest
name: Brest
lat: 48.38
lon: -4.50
tz: Europe/Paris
datum: LAT
z0: 4.13

[constituents]
SA     0.056   243.1
SSA    0.018   101.8
2Q1    0.006   212.4
Q1     0.020   284.6
O1     0.068   327.9
P1     0.023    67.2
K1     0.065    74.9
2N2    0.060   102.7
MU2    0.081   108.5
N2     0.422   119.6
NU2    0.079   116.0
M2     2.053   138.4
L2     0.071   137.7
T2     0.044   171.6
S2     0.749   177.9
K2     0.214   175.3
M3     0.023   337.0
MN4    0.020    64.9
M4     0.054   109.5
MS4    0.035   180.4
M6     0.031   352.3
2MS6   0.029    48.8
"""

SAINT_MALO = r"""# Saint-Malo, Naye lock
id: saint-malo
name: Saint-Malo
lat: 48.64
lon: -2.03
tz: Europe/Paris
datum: LAT
z0: 6.78

[constituents]
SA     0.061   236.0
O1     0.080   336.8
P1     0.031    90.9
K1     0.091    98.4
2N2    0.102   129.2
MU2    0.121   200.1
N2     0.720   161.2
NU2    0.143   158.8
M2     3.762   177.5
L2     0.184   176.0
T2     0.086   216.3
S2     1.464   228.5
K2     0.410   226.2
M4     0.287   273.7
MS4    0.202   332.5
MN4    0.103   250.0
M6     0.028   340.2
"""

SOUTHAMPTON = r"""# Southampton: young flood stand and a double high water. Do not drop M4, M6 or M8!
id: southampton
name: Southampton
lat: 50.90
lon: -1.40
tz: Europe/London
datum: LAT
z0: 2.90

[constituents]
SA     0.060   208.0
O1     0.045   358.2
P1     0.030   102.0
K1     0.093   111.6
MU2    0.125   246.0
N2     0.262   312.3
NU2    0.056   300.5
M2     1.362   331.0
L2     0.104   340.0
S2     0.406    12.1
K2     0.115     9.8
M3     0.020   133.0
MN4    0.055    70.2
M4     0.151   104.7
MS4    0.097   148.9
M6     0.139    78.4
2MS6   0.121   121.6
M8     0.042   103.9
"""

IMMINGHAM = r"""# Immingham, Humber
id: immingham
name: Immingham
lat: 53.63
lon: -0.19
tz: Europe/London
datum: LAT
z0: 4.22

[constituents]
SA     0.078   211.4
Q1     0.052    61.0
O1     0.169   113.9
P1     0.044   272.0
K1     0.147   282.7
2N2    0.055   112.0
MU2    0.138   230.3
N2     0.436   141.4
NU2    0.090   137.0
M2     2.291   161.6
L2     0.127   180.7
T2     0.045   207.0
S2     0.754   210.8
K2     0.215   208.7
M4     0.063   243.0
MS4    0.055   317.5
M6     0.034    92.0
"""

BOSTON = r"""# Boston, from the federal sheet, which is in feet
id: boston
name: Boston
lat: 42.35
lon: -71.05
tz: America/New_York
datum: MLLW
z0: 5.22
units: ft

[constituents]
SA     0.102   131.9
SSA    0.078    53.1
Q1     0.062   177.9
O1     0.365   187.1
P1     0.154   204.9
K1     0.455   205.6
2N2    0.134    49.3
MU2    0.115    35.4
N2     1.009    79.3
NU2    0.205    81.9
M2     4.527   109.6
L2     0.197   135.8
S2     0.734   145.9
K2     0.203   144.2
M4     0.079    48.0
M6     0.131   308.7
"""

HON_DAU = r"""# Hòn Dấu: one high and one low water a day
id: hon-dau
name: Hòn Dấu
lat: 20.67
lon: 106.82
tz: Asia/Ho_Chi_Minh
datum: LAT
z0: 1.90

[constituents]
SA     0.090   245.0
Q1     0.128     9.5
O1     0.702    35.0
P1     0.238    88.0
K1     0.720    91.0
J1     0.045   120.0
OO1    0.030   150.0
N2     0.008   101.0
M2     0.044   113.0
S2     0.030   140.0
K2     0.011   138.0
"""

FECAMP = rf"""# F{UNDECODABLE}camp - constantes harmoniques, service r{UNDECODABLE}gional, rev. 12/2025
id: fecamp
name: F{UNDECODABLE}camp
lat: 49,76
lon: 0,36
tz: Europe/Paris
datum: LAT
z0: 4,91

[constituents]
SA     0,058   231,2
O1     0,072   350,4
P1     0,029   104,0
K1     0,088   112,3
MU2    0,140   263,0
N2     0,508   263,7
NU2    0,101   260,2
M2     2,634   285,1
L2     0,164   292,0
T2     0,053   330,4
S2     0,886   333,7
K2     0,251   331,6
MN4    0,081    44,3
M4     0,243    74,9
MS4    0,158   127,2
M6     0,049   198,1
"""

XIAMEN = r"""# 厦门 数据来源: 港务局 2025 年分析
id：xiamen
name：厦门 (Xiamen)
lat：24.45
lon：118.07
tz：Asia/Shanghai
datum：LAT
z0：3.42

[constituents]
SA     0.112   228.3
Q1     0.049   242.2
O1     0.272   262.8
P1     0.106   299.4
K1     0.337   303.0
MU2    0.060   318.7
N2     0.357   335.5
NU2    0.070   332.0
M2     1.851   355.3
L2     0.072     9.1
T2     0.031    40.0
S2     0.536    42.4
K2     0.148    40.8
M4     0.062   310.0
MS4    0.041     2.2
"""

HARBOURS: dict[str, str] = {
    "data/stations/boston.tide": BOSTON,
    "data/stations/brest.tide": BREST,
    "data/stations/fecamp.tide": FECAMP,
    "data/stations/hon-dau.tide": HON_DAU,
    "data/stations/immingham.tide": IMMINGHAM,
    "data/stations/saint-malo.tide": SAINT_MALO,
    "data/stations/southampton.tide": SOUTHAMPTON,
    "data/stations/xiamen.tide": XIAMEN,
}
